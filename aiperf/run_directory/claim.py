"""The claim to a run: one primary at a time, on any node that sees the run directory.

A claim is a file that is created exclusively and touched at intervals; network file systems have no
dependable locks.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from aiperf.clock import format_utc
from aiperf.errors import RunHeldError

SILENCE_S = 90.0
"""A claim of another node that was not touched for this long is dead."""

TOUCH_INTERVAL_S = 15.0


class Claim:
    """The claim on one run, from construction to `release`.

    Raises RunHeldError if a living primary has it, naming its process, its node and since when.
    """

    def __init__(self, path: Path, now_ms: int) -> None:
        self._path = path
        self._token = secrets.token_hex(8)
        holder = {
            "token": self._token,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "process_started": psutil.Process().create_time(),
            "since": format_utc(now_ms),
        }
        while not self._create(json.dumps(holder).encode() + b"\n"):
            self._remove_if_dead()

    def _create(self, data: bytes) -> bool:
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        try:
            os.write(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return True

    def _remove_if_dead(self) -> None:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        holder = _parse(data)
        if not self._is_dead(holder):
            raise RunHeldError(
                f"{self._path.parent}: another primary has this run: process {holder.get('pid')} on "
                f"{holder.get('host')}, since {holder.get('since')}; end it first"
            )
        # Renamed first: if another primary took it over in between, its claim is put back.
        aside = self._path.with_name(f".{self._path.name}.{self._token}.tmp")
        try:
            self._path.rename(aside)
        except FileNotFoundError:
            return
        if aside.read_bytes() != data:
            os.link(aside, self._path)
        aside.unlink()

    def _is_dead(self, holder: dict[str, Any]) -> bool:
        if holder.get("host") == socket.gethostname():
            return not _lives(holder)
        return self._untouched_s() > SILENCE_S

    def _untouched_s(self) -> float:
        """By the file server's clock, so that clocks of nodes do not matter."""
        probe = self._path.with_name(f".{self._path.name}.{self._token}.tmp")
        try:
            probe.write_bytes(b"")
            return probe.stat().st_mtime - self._path.stat().st_mtime
        except FileNotFoundError:
            return 0.0
        finally:
            probe.unlink(missing_ok=True)

    def touch(self) -> None:
        """Show that the primary lives. No-op if the file system refuses."""
        try:
            os.utime(self._path)
        except OSError:
            return

    def release(self) -> None:
        """Give the run up; a claim of another primary stays."""
        try:
            if _parse(self._path.read_bytes()).get("token") == self._token:
                self._path.unlink()
        except OSError:
            return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@dataclass(frozen=True, slots=True)
class Holder:
    """The primary that has, or had, a run."""

    host: str
    pid: int
    alive: bool
    """False if it has died on this node, or on another one and is silent."""
    here: bool
    """True if it is, or was, a process of this node."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def find_holder(path: Path, now_ms: int) -> Holder | None:
    """The primary that a claim names; None without a claim. Writes nothing."""
    try:
        holder = _parse(path.read_bytes())
        silent_s = now_ms / 1000 - path.stat().st_mtime
        host, pid = str(holder["host"]), int(holder["pid"])
    except (OSError, KeyError, ValueError, TypeError):  # also a half-written claim
        return None
    here = host == socket.gethostname()
    return Holder(host, pid, _lives(holder) if here else silent_s <= SILENCE_S, here)


def is_held_here(path: Path) -> bool:
    """True if a living process of this node has the claim."""
    try:
        return _lives(_parse(path.read_bytes()))
    except OSError:
        return False


def _lives(holder: dict[str, Any]) -> bool:
    try:
        process = psutil.Process(int(holder["pid"]))
        # A process that its parent has not waited for yet is dead, too.
        ended = process.status() == psutil.STATUS_ZOMBIE
        return bool(not ended and process.create_time() == holder["process_started"])
    except (psutil.NoSuchProcess, KeyError, ValueError, TypeError):
        return False


def _parse(data: bytes) -> dict[str, Any]:
    """A half-written claim is one without a living holder on this node."""
    try:
        document = json.loads(data)
    except ValueError:
        return {"host": socket.gethostname()}
    return document if isinstance(document, dict) else {}
