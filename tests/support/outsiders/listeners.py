"""Listeners of processes, as the kernel lists them, and the same as the documents name them."""

import contextlib
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import psutil

from tests.support.folders import DOCS
from tests.support.processes import ask

ACCEPTS = 0x10000
"""The flag of a local socket that listens, in /proc/net/unix."""

HEXADECIMAL = re.compile(r"[0-9a-f]{16,}")


def listeners(processes: Iterable[psutil.Process]) -> set[str]:
    """Places where a process accepts messages: `tcp 127.0.0.1`, `udp ::`, `unix @aiperf-*`."""
    local = _local_sockets()
    found = set[str]()
    for process in processes:
        found |= ask(partial(_of, process, local), set())
    return found


def local_names(processes: Iterable[psutil.Process]) -> set[str]:
    """The names of the local sockets that processes listen on; `@` begins those without a file."""
    names = _local_sockets()
    return {name for process in processes for name in _local_of(process, names)}


def _of(process: psutil.Process, names: dict[str, str]) -> set[str]:
    found = {f"unix {HEXADECIMAL.sub('*', name)}" for name in _local_of(process, names)}
    for connection in process.net_connections(kind="inet"):
        stream = connection.type.name == "SOCK_STREAM"
        if connection.status == psutil.CONN_LISTEN or (not stream and not connection.raddr):
            found.add(f"{'tcp' if stream else 'udp'} {connection.laddr.ip}")
    return found


def _local_of(process: psutil.Process, names: dict[str, str]) -> set[str]:
    found = set[str]()
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(str(descriptor.readlink()))
    return {names[target] for target in found & names.keys()}


def _local_sockets() -> dict[str, str]:
    """The names of listening local sockets, by the descriptors that lead to them."""
    found = {}
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        words = line.split(maxsplit=7)
        if int(words[3], 16) & ACCEPTS and len(words) > 7:
            found[f"socket:[{words[6]}]"] = words[7]
    return found


def documented(kind: str) -> set[str]:
    """The listeners of one kind of run in docs/security.md."""
    for line in (DOCS / "security.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[0] == f"`{kind}`":
            return set(re.findall(r"`([^`]+)`", cells[1]))
    raise AssertionError(f"docs/security.md does not list the listeners of `{kind}`")
