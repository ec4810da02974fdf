"""Rank 0's side of the socket to its agent, shared by the real and the simulated trainer."""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
import time
from typing import Protocol

from aiperf.errors import MessageError
from aiperf.facts import EpochFacts, ProgressFacts
from aiperf.messages import (
    MAX_LINE_BYTES,
    Message,
    Phase,
    TrainerDone,
    TrainerEpoch,
    TrainerFailed,
    TrainerPhase,
    TrainerProgress,
    TrainerReady,
    encode,
)
from aiperf.processes import peer_user

ORPHANED_EXIT = 3
"""Exit code of a trainer whose agent is gone."""


class Reporter(Protocol):
    """Takes reports of a training as it proceeds."""

    def phase(self, phase: Phase) -> None:
        """A phase begins."""

    def progress(self, facts: ProgressFacts) -> None:
        """Images of the current epoch so far."""

    def epoch(self, facts: EpochFacts) -> None:
        """An epoch is complete."""


class Channel:
    """Messages to and from the agent, which listens on a local socket without a name in the file system.

    From the start this process ends at once when the agent closes the socket or dies.
    Raises MessageError where whoever listens is another user.
    """

    def __init__(self, name: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(f"\0{name}")
        if peer_user(self._socket) != os.getuid():
            raise MessageError("the agent's socket belongs to another user")
        self._lines: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def receive_line(self) -> bytes:
        """The next message; waits for it."""
        return self._lines.get()

    def phase(self, phase: Phase) -> None:
        """A phase begins."""
        self._send(TrainerPhase(monotonic_ms=now_ms(), phase=phase))

    def ready(self) -> None:
        """All is prepared."""
        self._send(TrainerReady(monotonic_ms=now_ms()))

    def progress(self, facts: ProgressFacts) -> None:
        """Images of the current epoch so far."""
        self._send(TrainerProgress(monotonic_ms=now_ms(), facts=facts))

    def epoch(self, facts: EpochFacts) -> None:
        """An epoch is complete."""
        self._send(TrainerEpoch(monotonic_ms=now_ms(), facts=facts))

    def done(self, early: bool) -> None:
        """The training is over."""
        self._send(TrainerDone(monotonic_ms=now_ms(), early=early))

    def failed(self, kind: str, reason: str) -> None:
        """The training cannot go on."""
        self._send(TrainerFailed(monotonic_ms=now_ms(), kind=kind, reason=reason[:2000]))

    def _send(self, message: Message) -> None:
        try:
            self._socket.sendall(encode(message))
        except OSError:
            os._exit(ORPHANED_EXIT)

    def _listen(self) -> None:
        pending = b""
        while data := self._read():
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                self._lines.put(line)
            if len(pending) > MAX_LINE_BYTES:
                break
        os._exit(ORPHANED_EXIT)

    def _read(self) -> bytes:
        try:
            return self._socket.recv(65536)
        except OSError:
            return b""


class SilentChannel:
    """What ranks other than 0 have in place of a channel: their failures go to the log, which the agent reads."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def phase(self, phase: Phase) -> None:
        """No-op: only rank 0 reports."""

    def ready(self) -> None:
        """No-op: only rank 0 reports."""

    def progress(self, facts: ProgressFacts) -> None:
        """No-op: only rank 0 reports."""

    def epoch(self, facts: EpochFacts) -> None:
        """No-op: only rank 0 reports."""

    def done(self, early: bool) -> None:
        """No-op: only rank 0 reports."""

    def failed(self, kind: str, reason: str) -> None:
        """One line of the log."""
        failure = TrainerFailed(monotonic_ms=now_ms(), rank=self._rank, kind=kind, reason=reason[:2000])
        sys.stderr.write(encode(failure).decode())
        sys.stderr.flush()


AnyChannel = Channel | SilentChannel


def now_ms() -> int:
    """Milliseconds of the node's monotonic clock."""
    return time.monotonic_ns() // 1_000_000
