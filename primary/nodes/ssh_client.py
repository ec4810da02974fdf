"""Connections by ssh: keys or agent, known hosts, options from ~/.ssh/config, jump hosts."""

from __future__ import annotations

import contextlib
import logging
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
from paramiko.ssh_exception import NoValidConnectionsError

from aiperf.config.sections.cluster import SshSection
from aiperf.errors import LaunchError

DEFAULT_PORT = 22
SYSTEM_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts"
MAX_JUMPS = 8

logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # errors are raised, and reported once


@dataclass(frozen=True, slots=True)
class Target:
    """A host to connect to, with the options of the ssh configuration for it."""

    name: str
    host: str
    port: int
    user: str | None
    keys: tuple[str, ...]
    jumps: tuple[str, ...]
    command: str | None

    @property
    def key_name(self) -> str:
        """Its name in known_hosts."""
        return self.host if self.port == DEFAULT_PORT else f"[{self.host}]:{self.port}"


def find_target(name: str, settings: SshSection) -> Target:
    """A host as a user writes it: an alias of ~/.ssh/config, or [user@]host[:port].

    Raises LaunchError.
    """
    user, _, rest = name.rpartition("@")
    host, colon, port = rest.rpartition(":") if rest.count(":") == 1 else (rest, "", "")
    if colon and not port.isdigit():
        raise LaunchError(f"host {name!r}: {port!r} is not a port")
    options = _options(host if colon else rest, settings)
    jump = options.get("proxyjump")
    return Target(
        name=name,
        host=options.get("hostname", host if colon else rest),
        port=int(port or options.get("port", DEFAULT_PORT)),
        user=user or options.get("user"),
        keys=tuple(options.get("identityfile", ())),
        jumps=() if jump in (None, "none") else tuple(jump.split(",")),
        command=options.get("proxycommand"),
    )


def _options(host: str, settings: SshSection) -> dict[str, Any]:
    path = Path(settings.config_file).expanduser()
    if not path.exists():
        return {}
    try:
        return dict(paramiko.SSHConfig.from_path(str(path)).lookup(host))
    except paramiko.SSHException as error:
        raise LaunchError(f"{path}: {error}") from None


def connect(name: str, settings: SshSection, depth: int = 0) -> paramiko.SSHClient:
    """A connection that is authenticated on both sides.

    Blocks. Raises LaunchError with the command that helps.
    """
    if depth > MAX_JUMPS:
        raise LaunchError(f"{name}: more than {MAX_JUMPS} jump hosts; do they form a circle?")
    target = find_target(name, settings)
    if not target.jumps:
        return _connect_to(target, settings, _proxy(target) if target.command else None)
    first, *others = target.jumps
    client = connect(first, settings, depth + 1)
    for following in [*(find_target(other, settings) for other in others), target]:
        client = _connect_to(following, settings, _tunnel(client, following))
    return client


def _connect_to(target: Target, settings: SshSection, through: Any) -> paramiko.SSHClient:
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    known = Path(settings.known_hosts).expanduser()
    try:
        if Path(SYSTEM_KNOWN_HOSTS).exists():
            client.load_system_host_keys(SYSTEM_KNOWN_HOSTS)
        if known.exists():
            client.load_system_host_keys(str(known))
        client.connect(
            target.host,
            target.port,
            username=target.user,
            key_filename=[str(Path(key).expanduser()) for key in target.keys] or None,  # type: ignore[arg-type]
            sock=through,
            timeout=settings.connect_timeout,
            banner_timeout=settings.connect_timeout,
            auth_timeout=settings.connect_timeout,
        )
    except (paramiko.SSHException, OSError, EOFError) as error:
        _hang_up(client, through)
        raise LaunchError(_explained(target, settings, error)) from None
    except BaseException:  # such as a thread that cannot be started
        _hang_up(client, through)
        raise
    transport = client.get_transport()
    assert transport is not None
    transport.set_keepalive(max(1, round(settings.keep_alive)))
    return client


def _hang_up(client: paramiko.SSHClient, through: Any) -> None:
    client.close()
    if isinstance(through, paramiko.ProxyCommand):
        with contextlib.suppress(OSError):
            through.close()


def _proxy(target: Target) -> paramiko.ProxyCommand:
    """The connection by the ProxyCommand of the ssh configuration."""
    assert target.command is not None
    try:
        return paramiko.ProxyCommand(target.command)
    except (OSError, ValueError) as error:  # not there, not executable; quotes without an end
        raise LaunchError(f"{target.name}: its ProxyCommand {target.command!r} cannot be started: {error}") from None


def _tunnel(client: paramiko.SSHClient, target: Target) -> Any:
    transport = client.get_transport()
    assert transport is not None
    try:
        channel = transport.open_channel("direct-tcpip", (target.host, target.port), ("127.0.0.1", 0))
    except paramiko.SSHException as error:
        raise LaunchError(f"{target.name}: the jump host cannot reach {target.host}:{target.port}: {error}") from None
    channel.jump_client = client  # type: ignore[attr-defined]  # kept alive by the tunnel
    return channel


def _explained(target: Target, settings: SshSection, error: Exception) -> str:
    """The problem in one line, with the command that helps."""
    where = f"{target.name} ({target.host}:{target.port})"
    known, name = Path(settings.known_hosts).expanduser(), target.key_name
    scan = f"ssh-keyscan -p {target.port} {target.host} >> {known}"
    if isinstance(error, paramiko.BadHostKeyException):
        return (
            f"{where}: its host key has CHANGED: another machine, or an interception. If you know why: "
            f"ssh-keygen -f {known} -R '{name}' && {scan}"
        )
    if isinstance(error, paramiko.AuthenticationException):
        copy = f"ssh-copy-id -p {target.port} {target.host}"
        return f"{where}: no key is accepted; passwords are not used. Install a key with: {copy}"
    if "not found in known_hosts" in str(error):
        return f"{where}: its host key is not known. Verify it, then: {scan}"
    return f"{where}: {_in_words(error, settings)}"


def _in_words(error: Exception, settings: SshSection) -> str:
    """An error of the network without its number."""
    if isinstance(error, socket.gaierror):
        return "its name is not known to this machine; check the spelling, DNS, /etc/hosts or ~/.ssh/config"
    if isinstance(error, TimeoutError):
        return f"no answer within {settings.connect_timeout:.0f} s; is it up, and does a firewall let ssh through?"
    if isinstance(error, NoValidConnectionsError):
        reasons = {_named(failure) for failure in error.errors.values()}
        return f"{'; '.join(sorted(reasons))}; does an ssh server run there, at this port?"
    return _named(error)


def _named(error: Exception) -> str:
    known = error.strerror if isinstance(error, OSError) else None
    return known or str(error) or type(error).__name__
