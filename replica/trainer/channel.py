"""Rank 0's side of the socket to its agent, shared by the real and the simulated trainer."""

import os
import queue
import socket
import struct
import sys
import threading
from collections.abc import Sequence

from aiperf.clock import Clock
from aiperf.errors import MessageError
from aiperf.facts import BuiltFacts, EpochFacts, ExchangeFacts, ProgressFacts, ServerFacts
from aiperf.storage.patience import Listener, Waits
from aiperf.wire import messages
from aiperf.wire.lines import MAX_LINE_BYTES, encode

ORPHANED_EXIT = 3
"""Exit code of a trainer whose agent is gone."""


class Reporter:
    """The receiver of a training's reports, which by itself ignores them."""

    def phase(self, phase: messages.Phase) -> None:
        """Report that a phase begins."""

    def progress(self, facts: ProgressFacts) -> None:
        """Report the images of the current epoch so far."""

    def epoch(self, facts: EpochFacts) -> None:
        """Report a completed epoch."""

    def exchange(self, groups: Sequence[ExchangeFacts], servers: Sequence[ServerFacts]) -> None:
        """Report the work of a hybrid training's groups and servers in an epoch."""


class RankReporter(Reporter):
    """The receiver of one rank's reports, which by itself ignores them."""

    def ready(self, built: BuiltFacts) -> None:
        """Report that the model is built and warm."""

    def done(self, early: bool) -> None:
        """Report that the training is over; `early` if patience ended it."""

    def failed(self, kind: str, reason: str) -> None:
        """Report that the training cannot continue."""


def peer_user(connection: socket.socket) -> int:
    """The user of the process at the other end of a local socket, as the kernel knows it."""
    layout = struct.Struct("3i")  # struct ucred: process, user, group
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, layout.size)
    return int(layout.unpack(data)[1])


class Channel(RankReporter):
    """Messages to and from the agent, over a local socket without a name in the file system.

    From the start this process ends at once when the agent closes the socket or dies.
    Raises MessageError if the socket belongs to another user.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self._clock = clock
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(f"\0{name}")
        if peer_user(self._socket) != os.getuid():
            raise MessageError("the agent's socket belongs to another user")
        self._sending = threading.Lock()
        self.waits: Listener = Waits(self._wait).of("files")
        """Takes the reason of a wait of this rank for storage, and "" at its end, in any thread."""
        self._lines: queue.Queue[bytes] = queue.Queue()
        # A thread of its own, since the main one computes for minutes: the end of the agent must
        # end this process at once, which holds accelerators that the next trial needs.
        threading.Thread(target=self._listen, daemon=True).start()

    def receive_line(self) -> bytes:
        """Wait for the next message."""
        return self._lines.get()

    def phase(self, phase: messages.Phase) -> None:
        """Send that a phase begins."""
        self._send(messages.TrainerPhase(monotonic_ms=self._clock.monotonic_ms(), phase=phase))

    def ready(self, built: BuiltFacts) -> None:
        """Send that the model is built and warm."""
        self._send(messages.TrainerReady(monotonic_ms=self._clock.monotonic_ms(), built=built))

    def progress(self, facts: ProgressFacts) -> None:
        """Send the images of the current epoch so far."""
        self._send(messages.TrainerProgress(monotonic_ms=self._clock.monotonic_ms(), facts=facts))

    def epoch(self, facts: EpochFacts) -> None:
        """Send a completed epoch."""
        self._send(messages.TrainerEpoch(monotonic_ms=self._clock.monotonic_ms(), facts=facts))

    def exchange(self, groups: Sequence[ExchangeFacts], servers: Sequence[ServerFacts]) -> None:
        """Send the work of groups and servers in an epoch."""
        now_ms = self._clock.monotonic_ms()
        self._send(messages.TrainerExchange(monotonic_ms=now_ms, groups=tuple(groups), servers=tuple(servers)))

    def _wait(self, reason: str) -> None:
        self._send(messages.TrainerWaits(monotonic_ms=self._clock.monotonic_ms(), reason=reason[:1000]))

    def done(self, early: bool) -> None:
        """Send that the training is over."""
        self._send(messages.TrainerDone(monotonic_ms=self._clock.monotonic_ms(), early=early))

    def failed(self, kind: str, reason: str) -> None:
        """Send that the training cannot continue."""
        self._send(messages.TrainerFailed(monotonic_ms=self._clock.monotonic_ms(), kind=kind, reason=reason[:2000]))

    def _send(self, message: messages.Message) -> None:
        try:
            with self._sending:
                self._socket.sendall(encode(message))
        except OSError:
            # Not sys.exit: this may be any thread, and an ordinary end waits for those of the
            # framework.
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


class SilentChannel(RankReporter):
    """The receiver of the reports of ranks other than 0, and of servers.

    Only failures matter: they go to the log, which the agent reads.
    """

    def __init__(self, name: str, group: int, clock: Clock) -> None:
        self._name = name
        self._group = group
        self._clock = clock

    def failed(self, kind: str, reason: str) -> None:
        """Write one line into the log."""
        now_ms = self._clock.monotonic_ms()
        failure = messages.TrainerFailed(
            monotonic_ms=now_ms, name=self._name, group=self._group, kind=kind, reason=reason[:2000]
        )
        sys.stderr.write(encode(failure).decode())
        sys.stderr.flush()
