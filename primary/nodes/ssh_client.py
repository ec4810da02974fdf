"""Commands on other machines, by an ssh client: OpenSSH's own, or paramiko on machines without it.

Nothing asks for a password, and no host is trusted that is not known.
"""

import os
import re
import shlex
import shutil
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from aiperf.answers import Answer, ask_and_wait
from aiperf.config.sections.cluster import SshSection
from aiperf.errors import LaunchError
from aiperf.registry import Registry

DEFAULT_PORT = 22
FAILED = 255
"""The exit code of ssh itself; any other is that of the remote command."""

PASSING = (
    "timed out",
    "refused",
    "reset",
    "closed by",
    "No route to host",
    "unreachable",
    "Temporary failure in name resolution",
    "request failed on channel",
)
"""Words of errors that another attempt may not meet."""

QUERY_TIMEOUT_S = 20.0
MAX_JUMPS = 8
DEFAULTS = SshSection()
SYSTEM_CONFIG = "/etc/ssh/ssh_config"

_NO_OPENSSH = "the program ssh of OpenSSH is not on this machine"
_INSTALL_OPENSSH = "install it (Debian: apt-get install openssh-client)"
MISSING = {
    "auto": f"{_NO_OPENSSH}, nor the package paramiko: {_INSTALL_OPENSSH}, or pip install paramiko",
    "openssh": f'{_NO_OPENSSH}: {_INSTALL_OPENSSH}, or set ssh.client = "auto"',
    "paramiko": 'the package paramiko is not installed: pip install paramiko, or set ssh.client = "auto"',
}
"""The complaint about a machine without the client, by `ssh.client`."""


@dataclass(frozen=True, slots=True)
class Target:
    """A host with its options, as the client would reach it."""

    name: str
    """Name of the host as the user writes it."""
    host: str
    port: int
    user: str
    keys: tuple[str, ...]
    jump: str
    command: str
    alias: str

    @property
    def key_name(self) -> str:
        """Name of the host in known_hosts."""
        if self.alias:
            return self.alias
        return self.host if self.port == DEFAULT_PORT else f"[{self.host}]:{self.port}"

    @property
    def jumps(self) -> list[str]:
        """Names of its jump hosts, the first one first."""
        return [name.removeprefix("ssh://") for name in self.jump.split(",") if name]

    def words(self) -> list[str]:
        """Words of OpenSSH's programs that lead to it without any configuration."""
        through = f"ProxyJump={self.jump}" if self.jump else f"ProxyCommand={self.command}" if self.command else ""
        alias = ["-o", f"HostKeyAlias={self.alias}"] if self.alias else []
        port = ["-p", str(self.port)] if self.port != DEFAULT_PORT else []
        return [*port, *(["-o", through] if through else []), *alias, f"{self.user}@{self.host}"]


class SshClient(Protocol):
    """A program that does what `ssh HOST COMMAND` does, over its pipes.

    It exits with the code of the remote command, or 255 after its own error, said on standard error
    in the words of OpenSSH. It ends with a signal, and the remote command's input with its own.
    """

    def command(self, name: str, settings: SshSection) -> list[str]:
        """The words of the program, which a remote command line follows. Raises LaunchError."""
        ...

    def find_target(self, name: str, settings: SshSection) -> Target:
        """A host with the options that the program would use for it. Raises LaunchError."""
        ...


CLIENTS = Registry[SshClient](
    "ssh client",
    {"openssh": "primary.nodes.openssh:CLIENT", "paramiko": "primary.nodes.paramiko_client:CLIENT"},
)


def client_name(settings: SshSection) -> str:
    """The client that is used: OpenSSH's, which knows its own configuration, if it is there.

    Raises LaunchError if there is none, or no configuration where `ssh.config_file` says.
    """
    # Clients read what is there: with a name that is wrong they would go on without a word.
    if settings.config_file != DEFAULTS.config_file and not Path(expanded(settings.config_file)).exists():
        raise LaunchError(f"ssh.config_file: there is no file {expanded(settings.config_file)}")
    there = {"openssh": shutil.which("ssh") is not None, "paramiko": find_spec("paramiko") is not None}
    # OpenSSH first: the user's configuration is written for it, and paramiko knows a part of it.
    for name, found in there.items():
        if found and settings.client in ("auto", name):
            return name
    raise LaunchError(MISSING[settings.client])


def client_of(settings: SshSection) -> SshClient:
    """The client that is used. Raises LaunchError if there is none."""
    return CLIENTS.load(client_name(settings))


def parts_of(name: str) -> tuple[str, str, str]:
    """User, host and port of a host as a user writes it, [user@]host[:port]. Raises LaunchError."""
    user, _, rest = name.rpartition("@")
    host, port = rest, ""
    if bracketed := re.fullmatch(r"\[(.+)\](?::(.*))?", rest):
        host, port = bracketed[1], bracketed[2] or ""
    elif rest.count(":") == 1:  # more colons are an IPv6 address
        host, _, port = rest.partition(":")
        port = port or "none"  # a colon without a number is refused below
    if port and not port.isdigit():
        raise LaunchError(f"host {name!r}: {port!r} is not a port")
    return user, host, port


def words_of(name: str) -> list[str]:
    """A host as a user writes it as words of OpenSSH's ssh. Raises LaunchError."""
    user, host, port = parts_of(name)
    # The two dashes keep a host whose name begins with one from being an option.
    return [*(["-p", port] if port else []), "--", f"{user}@{host}" if user else host]


def ssh_command(name: str, settings: SshSection) -> list[str]:
    """The words of the client for a host; a remote command line follows. Raises LaunchError."""
    return client_of(settings).command(name, settings)


def in_a_shell(name: str, settings: SshSection) -> str:
    """A command that a user pastes to reach a host as AIPerf does."""
    try:
        jump = find_target(name, settings).jump
    except LaunchError:  # the command itself shows what is wrong with the configuration
        jump = ""
    return shlex.join(_typed(name, settings, jump))


def _typed(name: str, settings: SshSection, jump: str) -> list[str]:
    """The words of ssh for a host behind jump hosts."""
    chosen = ["-F", settings.config_file] if settings.config_file != DEFAULTS.config_file else []
    if settings.known_hosts != DEFAULTS.known_hosts:
        chosen += ["-o", _known_hosts(settings)]
        if jump:  # to its own jump hosts ssh hands down a configuration, and no options
            rest, _, last = jump.rpartition(",")
            before = shlex.join(_typed(last.removeprefix("ssh://"), settings, rest)[1:]).replace("%", "%%")
            chosen += ["-o", f"ProxyCommand=ssh -W '[%h]:%p' {before}"]
    return ["ssh", *chosen, *(word for word in words_of(name) if word != "--")]


def _known_hosts(settings: SshSection) -> str:
    path = expanded(settings.known_hosts)
    return f'UserKnownHostsFile="{path}"' if " " in path else f"UserKnownHostsFile={path}"


def expanded(path: str) -> str:
    """A path of a setting, with the home folder in place of `~`."""
    return str(Path(path).expanduser())


def in_posix_shell(script: bytes) -> str:
    """A remote command line for any login shell: a POSIX shell reads its script from the pipe.

    Shells differ in what quotes and backslashes mean, and in redirections, `trap` and `kill`.
    """
    # `dd bs=1` takes exactly the bytes of the script. A shell's `read`, or `head`, may take more
    # from the pipe, which the replica then lacks.
    return f"exec /bin/sh -c 'eval \"$(dd bs=1 count={len(script)} 2>/dev/null)\"'"


def find_target(name: str, settings: SshSection) -> Target:
    """A host with the options that the client would use for it. Raises LaunchError."""
    return client_of(settings).find_target(name, settings)


def check_jumps(name: str, settings: SshSection) -> None:
    """Raise LaunchError if jump hosts form a circle: OpenSSH would start processes without end."""
    following, seen = name, 0
    while jumps := find_target(following, settings).jumps:
        # Of several hosts only the first one's own jump host counts: ssh reaches the others through
        # it.
        following, seen = jumps[0], seen + 1
        if seen > MAX_JUMPS:
            raise LaunchError(f"{name}: more than {MAX_JUMPS} jump hosts; do they form a circle?")


def run(words: list[str], data: bytes = b"", timeout_s: float = QUERY_TIMEOUT_S) -> Answer:
    """Run one of OpenSSH's programs. Raises LaunchError if it is missing or takes too long."""
    answer = ask_and_wait(words, timeout_s, given=data)
    if answer.missing:
        raise LaunchError(MISSING["openssh"])
    if answer.code is None:
        raise LaunchError(f"{answer.reason}: {shlex.join(words[-2:])}", restart=True)
    return answer


GONE = "kex_exchange_identification|banner exchange"
"""Beginnings of OpenSSH's line about a connection that ends before it is answered.

Reading may be the first to see it, or writing."""

ELSEWHERE = " (OpenSSH's programs are not on this machine: use them on another, and copy key and known_hosts here)"


def explained(name: str, settings: SshSection, said: str) -> str:
    """The reason why ssh failed, by its standard error, in a line with the command that helps."""
    try:
        target = find_target(name, settings)
    except LaunchError as error:
        return str(error)
    where = f"{target.name} ({target.host}:{target.port})"
    elsewhere = "" if shutil.which("ssh") else ELSEWHERE
    if unknown := _host_key_trouble(target, settings, said):
        return f"{where}: {unknown}{elsewhere}"
    # A jump host writes its own name in front of the same words.
    if refused := re.search(r"(\S+): Permission denied \(", said):
        jump = _jump_host(target, settings, refused[1].rpartition("@")[2])
        at = f" at its jump host {jump.name}" if jump else ""
        remedy = _key_remedy(jump or target, settings)
        return f"{where}: no key is accepted{at}; passwords are not used. {remedy}{elsewhere}"
    if target.command and re.search(GONE, said):
        # ssh's own line says only that the command is gone; the command, or its shell, says why.
        own = [line for line in said.strip().splitlines() if not re.search(rf"{GONE}|UNKNOWN port", line)]
        return f"{where}: its ProxyCommand {target.command!r} fails: {own[0] if own else last_line(said)}"
    return f"{where}: {_network_trouble(said, settings)}"


def _network_trouble(said: str, settings: SshSection) -> str:
    if "Could not resolve hostname" in said:
        return "its name is not known to this machine; check the spelling, DNS, /etc/hosts or ~/.ssh/config"
    if "timed out" in said:
        return f"no answer within {settings.connect_timeout:.0f} s; is it up, and does a firewall let ssh through?"
    if "Connection refused" in said:
        return "Connection refused; does an ssh server run there, at this port?"
    return last_line(said) or "ssh has ended without a word"


def _jump_host(target: Target, settings: SshSection, called: str) -> Target | None:
    """The jump host with this name, address, or name in known_hosts; None if it is the target."""
    if called in (target.host, target.alias, target.key_name):
        return None
    for number, name in enumerate(target.jumps):
        jump = find_target(name, settings)
        if called in (jump.host, jump.alias, jump.key_name):
            return replace(jump, jump=",".join(target.jumps[:number]) or jump.jump)
    return None


def _host_key_trouble(target: Target, settings: SshSection, said: str) -> str | None:
    found = re.search(r"No \S+ host key is known for (\S+) and|Host key for (\S+) has changed", said)
    key_name = (found[1] or found[2]) if found else target.key_name
    jump = _jump_host(target, settings, key_name)
    of = f"the host key of its jump host {key_name}" if jump else "its host key"
    known = expanded(settings.known_hosts)
    reached = jump or target
    trust = shlex.join(
        ["ssh", "-o", "StrictHostKeyChecking=accept-new", *_typed(reached.name, settings, reached.jump)[1:]]
    )
    if "REVOKED" in said:
        return f"{of} is marked as REVOKED in known_hosts: another machine, or a key that leaked; ask its administrator"
    if "IDENTIFICATION HAS CHANGED" in said or "has changed and you have requested strict" in said:
        forget = shlex.join(["ssh-keygen", "-f", known, "-R", key_name])
        return f"{of} has CHANGED: another machine, or an interception. If you know why: {forget} && {trust} true"
    if "Host key verification failed" in said:
        return f"{of} is not known. Verify it, then: {trust} true"
    return None


def _key_remedy(target: Target, settings: SshSection) -> str:
    if target.jump and settings.config_file != DEFAULTS.config_file:  # which ssh-copy-id does not read
        jumps = [find_target(name, settings) for name in target.jumps]
        target = replace(target, jump=",".join(f"{jump.user}@{_in_brackets(jump.host)}:{jump.port}" for jump in jumps))
    there = [expanded(key) for key in target.keys if Path(expanded(key)).is_file()]
    copy = shlex.join(["ssh-copy-id", *target.words()])
    if not there and not _agents_keys():
        return f"There is no key here: ssh-keygen -t ed25519 && {copy}"
    for key in there:
        if _is_locked(key) and _fingerprint(key) not in _agents_keys():
            start = "" if os.environ.get("SSH_AUTH_SOCK") else 'eval "$(ssh-agent)" && '
            return f"The key has a passphrase; give it to the agent: {start}ssh-add {shlex.quote(key)}"
    return f"Install a key with: {copy}"


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_locked(key: str) -> bool:
    # ssh-keygen can derive the public key only from a private key that it can read.
    return _answer("ssh-keygen", "-y", "-P", "", "-f", key) is None


def _fingerprint(key: str) -> str:
    return (_answer("ssh-keygen", "-l", "-f", key) or "? no-fingerprint").split()[1]


def _agents_keys() -> str:
    return _answer("ssh-add", "-l") or ""


def _answer(*words: str) -> str | None:
    """The output of a program; None if it fails."""
    try:
        done = run(list(words))
    except LaunchError:
        return None
    return done.output if done.fine else None


def last_line(said: str) -> str:
    """The last line of a program's complaints, but for its notes of what it has added or closed."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    # These lines come last, and are not the reason.
    telling = [line for line in lines if not line.startswith(("Connection closed", "Warning: Permanently"))]
    return (telling or lines or [""])[-1]
