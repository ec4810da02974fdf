"""A trainer's side of the pipe to its agent, shared by the real and the simulated trainer."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import IO

from aiperf.messages import (
    Message,
    Phase,
    TrainerDone,
    TrainerEpoch,
    TrainerFailed,
    TrainerPhase,
    TrainerProgress,
    TrainRequest,
    decode_train_request,
    encode,
)

ORPHANED_EXIT = 3
"""Exit code of a trainer whose agent is gone."""


class Channel:
    """Messages to the agent. Standard output is kept for them: whatever else prints goes to standard error."""

    def __init__(self) -> None:
        self._out: IO[bytes] = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def receive_request(self) -> TrainRequest:
        """The one request. Raises MessageError."""
        return decode_train_request(sys.stdin.buffer.readline())

    def end_with_agent(self) -> None:
        """From now on, end this process at once when the agent closes the pipe or dies."""
        threading.Thread(target=_exit_at_end_of_input, daemon=True).start()

    def phase(self, phase: Phase) -> None:
        """A phase begins."""
        self._send(TrainerPhase(monotonic_ms=now_ms(), phase=phase))

    def progress(self, epoch: int, images_trained: int, images_evaluated: int) -> None:
        """Images of the current epoch so far."""
        self._send(
            TrainerProgress(
                monotonic_ms=now_ms(),
                epoch=epoch,
                images_trained=images_trained,
                images_evaluated=images_evaluated,
            )
        )

    def epoch_completed(self, message: TrainerEpoch) -> None:
        """An epoch is complete."""
        self._send(message)

    def done(self, early: bool) -> None:
        """The training is over."""
        self._send(TrainerDone(monotonic_ms=now_ms(), early=early))

    def failed(self, kind: str, reason: str) -> None:
        """The training cannot go on."""
        self._send(TrainerFailed(monotonic_ms=now_ms(), kind=kind, reason=reason[:2000]))

    def _send(self, message: Message) -> None:
        try:
            self._out.write(encode(message))
        except BrokenPipeError:
            os._exit(ORPHANED_EXIT)


def now_ms() -> int:
    """Milliseconds of the node's monotonic clock."""
    return time.monotonic_ns() // 1_000_000


def _exit_at_end_of_input() -> None:
    # Unbuffered: a thread that waits inside a buffered reader cannot be shut down with the interpreter.
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(ORPHANED_EXIT)
