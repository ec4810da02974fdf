"""A program in place of `ssh HOST COMMAND`, with paramiko; its errors are in OpenSSH's words.

It imports nothing of AIPerf: one is started for every connection.
"""

import contextlib
import fnmatch
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey
from paramiko.ssh_exception import NoValidConnectionsError

FAILED = 255
NO_STATUS = -1
"""Exit code of paramiko for a command that was killed, or whose connection is lost."""

UNVERIFIED = "Host key verification failed."
BLOCK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Hop:
    """A host on the way, the last one included."""

    host: str
    port: int
    user: str
    keys: list[str]
    """Files; a missing one is passed over."""
    key_name: str
    """Name of the host in known_hosts."""
    command: str
    """ProxyCommand of the host, or an empty text."""
    agent: bool
    """True if keys of the agent may be used."""


class Refused(Exception):  # noqa: N818
    """A refused connection, in the words of OpenSSH."""


class KnownHosts(paramiko.MissingHostKeyPolicy):
    """The lines of known_hosts about one host; every other key is refused."""

    def __init__(self, key_name: str, files: Sequence[str]) -> None:
        self.key_name = key_name
        self._keys: list[paramiko.PKey] = []
        self._revoked: list[paramiko.PKey] = []
        for file in files:
            for line, text in enumerate(_lines_of(file), 1):
                if problem := self._read(text.strip()):
                    _say(f"{file}:{line}: skipped: {problem}")

    def _read(self, text: str) -> str | None:
        """Read a line of known_hosts, and return the problem with it."""
        if not text or text.startswith("#"):
            return None
        mark, rest = text.split(None, 1) if text.startswith("@") and " " in text else ("", text)
        if mark not in ("", "@revoked"):
            return f"paramiko does not know the mark {mark}"
        try:
            entry = HostKeyEntry.from_line(" ".join(rest.split()))
        except (InvalidHostKey, paramiko.SSHException, ValueError):
            entry = None
        if entry is None or entry.key is None:
            return "not a host key that paramiko can read"
        if _matches(self.key_name, entry.hostnames):
            (self._revoked if mark else self._keys).append(entry.key)
        return None

    def transport(self, sock: Any, **options: Any) -> paramiko.Transport:
        """A transport that asks for the types of key that are known first, as OpenSSH does."""
        made = paramiko.Transport(sock, **options)
        types = made.get_security_options()
        known = {key.get_name() for key in self._keys}
        # A stable sort: known types come to the front (False is before True), each part in its
        # order.
        types.key_types = sorted(
            types.key_types, key=lambda kind: ("ssh-rsa" if kind.startswith("rsa-") else kind) not in known
        )
        return made

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        """Accept a known key. Raises Refused."""
        if key in self._revoked:
            raise Refused(f"REVOKED HOST KEY DETECTED for {self.key_name}\n{UNVERIFIED}")
        if key in self._keys:
            return
        if self._keys:
            raise Refused(
                f"Host key for {self.key_name} has changed and you have requested strict checking.\n{UNVERIFIED}"
            )
        raise Refused(
            f"No {key.get_name()} host key is known for {self.key_name} and you have requested strict checking.\n"
            f"{UNVERIFIED}"
        )


def _lines_of(file: str) -> list[str]:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _matches(name: str, patterns: Sequence[str]) -> bool:
    """Like OpenSSH: `*` and `?`, hashed names, and a negated pattern that decides."""
    found = False
    for pattern in patterns:
        plain = pattern.removeprefix("!")
        if plain.startswith("|1|"):
            with contextlib.suppress(ValueError):  # a damaged hash
                found |= paramiko.HostKeys.hash_host(name, plain) == plain
        # Brackets enclose hosts with ports; they are not a pattern here.
        elif fnmatch.fnmatchcase(name.lower(), plain.lower().replace("[", "[[]")):
            if pattern != plain:
                return False
            found = True
    return found


def connect(way: dict[str, Any]) -> paramiko.Transport:
    """An authenticated connection to the last hop, through the others. Raises Refused."""
    transport: paramiko.Transport | None = None
    for hop in (Hop(**fields) for fields in way["hops"]):
        with _in_words(hop):
            transport = _connect_to(hop, transport, way)
            transport.set_keepalive(way["keep_alive_s"])
    assert transport is not None
    return transport


def _connect_to(hop: Hop, before: paramiko.Transport | None, way: dict[str, Any]) -> paramiko.Transport:
    through: Any = None
    if before is not None:
        through = before.open_channel("direct-tcpip", (hop.host, hop.port), ("127.0.0.1", 0), timeout=way["timeout_s"])
    elif hop.command:
        through = _proxy(hop)
    known = KnownHosts(hop.key_name, way["known_hosts"])
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(known)
    client.connect(
        hop.host,
        hop.port,
        username=hop.user,
        key_filename=[key for key in hop.keys if os.access(key, os.R_OK)],  # type: ignore[arg-type]
        allow_agent=hop.agent,
        look_for_keys=False,
        sock=through,
        timeout=way["timeout_s"],
        banner_timeout=2 * way["timeout_s"],  # its error is also that of a closed connection: `timeout` is first
        auth_timeout=way["timeout_s"],
        transport_factory=known.transport,
    )
    transport = client.get_transport()
    assert transport is not None
    transport.client = client  # type: ignore[attr-defined]  # a client closes its connection when it is collected
    return transport


def _proxy(hop: Hop) -> paramiko.ProxyCommand:
    try:
        return paramiko.ProxyCommand(hop.command)
    except (OSError, ValueError) as error:  # not there, not executable; quotes without an end
        reason = f"its ProxyCommand {hop.command!r} cannot be started: {getattr(error, 'strerror', None) or error}"
        raise Refused(reason) from None


@contextlib.contextmanager
def _in_words(hop: Hop) -> Iterator[None]:
    where = f"ssh: connect to host {hop.host} port {hop.port}"
    try:
        yield
    except socket.gaierror as error:
        raise Refused(f"ssh: Could not resolve hostname {hop.host}: {error.strerror}") from None
    except TimeoutError:
        raise Refused(f"{where}: Connection timed out") from None
    except NoValidConnectionsError as error:
        reasons = {getattr(failure, "strerror", None) or str(failure) for failure in error.errors.values()}
        raise Refused(f"{where}: {'; '.join(sorted(reasons))}") from None
    except paramiko.ChannelException as error:
        raise Refused(f"{where}: the jump host cannot reach it: {error.text}") from None
    except paramiko.AuthenticationException:
        raise Refused(f"{hop.user}@{hop.host}: Permission denied (publickey).") from None
    except (paramiko.SSHException, OSError, EOFError, ValueError) as error:
        raise Refused(_reason(hop, where, error)) from None


def _reason(hop: Hop, where: str, error: Exception) -> str:
    """An error for which paramiko has no class of its own."""
    text = str(getattr(error, "strerror", None) or error)
    if "No authentication methods" in text:  # there is no key at all
        return f"{hop.user}@{hop.host}: Permission denied (publickey)."
    if "No existing session" in text:  # paramiko has stopped waiting for the server
        return f"{where}: Connection timed out"
    if isinstance(error, EOFError | ConnectionError) or "banner" in text:
        return f"{where}: closed by the other side: {text}"
    return f"{where}: {text}"


def relay(transport: paramiko.Transport, command: str) -> int:
    """Run a command with this process's pipes; its exit code. Raises Refused."""
    channel = transport.open_session()
    channel.exec_command(command)
    outputs = [
        threading.Thread(target=_copy, args=(read, descriptor), daemon=True)
        for read, descriptor in ((channel.recv, 1), (channel.recv_stderr, 2))
    ]
    for thread in [*outputs, threading.Thread(target=_send, args=(channel,), daemon=True)]:
        thread.start()
    # The exit status may come before the last output: RFC 4254 (6.10) leaves the order open.
    for thread in outputs:
        thread.join()
    code = channel.recv_exit_status()
    if code != NO_STATUS:
        return code
    # Killed there, or lost on the way: a live connection answers, even if it refuses.
    transport.global_request("keepalive@openssh.com", wait=True)
    if not transport.is_active():
        raise Refused("Connection closed by the remote host.")
    return FAILED


def _copy(read: Callable[[int], bytes], descriptor: int) -> None:
    try:
        while data := read(BLOCK_BYTES):
            while data:
                data = data[os.write(descriptor, data) :]
    except OSError:  # the reader of this program has gone
        # A thread cannot end the process by an exception.
        os._exit(FAILED)


def _send(channel: paramiko.Channel) -> None:
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # the command has ended
        while data := os.read(0, BLOCK_BYTES):
            channel.sendall(data)
        channel.shutdown_write()


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main(words: Sequence[str]) -> int:
    """Run a command line on a host; 255 if that fails."""
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # errors are raised, and reported once
    try:
        return relay(connect(json.loads(words[0])), " ".join(words[1:]))
    except Refused as error:
        _say(str(error))
    except (paramiko.SSHException, OSError, EOFError) as error:
        _say(f"Connection closed by the remote host: {error}")
    return FAILED


if __name__ == "__main__":
    found = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(found)  # a thread may still read standard input
