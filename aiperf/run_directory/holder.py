"""The process that holds a run: how it is described, and whether it still lives.

Nothing here moves with the clock: a process is known by the machine's boot, its namespaces, its id
and the ticks of the machine at its start.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aiperf.clock import format_utc
from aiperf.host import this_host

_PROC = Path("/proc")
_START_TICKS = 19
"""Place of the start in /proc/PID/stat behind the name: field 22 of proc(5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that holds or held a run; unknown facts are empty or 0."""

    token: str = ""
    host: str = ""
    boot: str = ""
    """/proc/sys/kernel/random/boot_id: one boot of one machine."""
    namespaces: str = ""
    """PID and time namespaces of the process: ids and ticks mean nothing in others."""
    pid: int = 0
    started_ticks: int = 0
    """Start of the process since the boot, in ticks of its time namespace."""
    since: str = ""
    """Time in UTC at which the process took the run, for people."""
    alone: bool = True
    """False if an earlier holder was only silent, and may be at work again."""
    released: bool = False

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}" if self.pid else "a primary that cannot be identified"

    @property
    def named(self) -> str:
        """The process, its node, and since when it has the run."""
        return f"{self}, since {self.since}" if self.since else str(self)

    def encode(self) -> bytes:
        """Encode the holder as one line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"


def parse_holder(data: bytes) -> Holder:
    """The holder that a claim names, as far as it can be read: also one of an earlier version."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return Holder()
    if not isinstance(document, dict):
        return Holder()
    facts: dict[str, Any] = {}
    for name, kind in _KINDS.items():
        value = document.get(name)
        if type(value) is kind:
            facts[name] = value
    return Holder(**facts)


_KINDS = {
    "token": str,
    "host": str,
    "boot": str,
    "namespaces": str,
    "pid": int,
    "started_ticks": int,
    "since": str,
    "alone": bool,
    "released": bool,
}


class Machine:
    """The machine of this process, as far as holders are concerned."""

    def __init__(self) -> None:
        self.host = this_host().name()
        self.boot = _text(_PROC / "sys/kernel/random/boot_id")
        self.namespaces = " ".join(filter(None, (_link("self/ns/pid"), _link("self/ns/time"))))
        self._own_proc = _link("self") == str(os.getpid())
        """False if /proc is that of another namespace: its numbers are of other processes."""

    def describe(self, token: str, now_ms: int, alone: bool) -> Holder:
        """This process as a holder."""
        return Holder(
            token=token,
            host=self.host,
            boot=self.boot,
            namespaces=self.namespaces,
            pid=os.getpid(),
            started_ticks=_ticks("self") or 0,
            since=format_utc(now_ms),
            alone=alone,
        )

    def is_here(self, holder: Holder) -> bool:
        """True if its process id means the same process to this one."""
        return bool(self.boot) and (holder.boot, holder.namespaces) == (self.boot, self.namespaces)

    def lives(self, holder: Holder) -> bool | None:
        """True if the holder lives; None if that cannot be seen from here."""
        if not self.is_here(holder) or not self._own_proc or not holder.started_ticks or holder.pid <= 0:
            return None
        try:
            return _ticks(str(holder.pid)) == holder.started_ticks
        except OSError:  # it is gone, or /proc hides the processes of other users
            return None if _has_process(holder.pid) else False


def _has_process(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # signal 0 only asks
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _ticks(process: str) -> int | None:
    """The start of a process in ticks; None if it has ended and was not waited for yet.

    Raises OSError.
    """
    # The name of a process may have parentheses and spaces: the fields are behind its last one.
    fields = (_PROC / process / "stat").read_bytes().rpartition(b")")[2].split()
    return None if fields[0] in (b"Z", b"X", b"x") else int(fields[_START_TICKS])


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _link(name: str) -> str:
    try:
        return str((_PROC / name).readlink())
    except OSError:
        return ""
