"""The contract of the messages between the roots of groups and their parameter servers.

Processes are numbered: the roots by their groups from 0, then the servers, then the starter of the
groups. One thread of a process calls its mailbox.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from aiperf.clock import Clock
from replica.trainer.servers.optimisers.contract import Vector


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message that can be taken."""

    source: int
    tag: int
    number: int = 0
    """Number of the question that this is, or that it answers; 0 of other messages."""


class Mailbox(Protocol):
    """Messages between processes; those of one process keep their order."""

    @property
    def number(self) -> int:
        """Number of this process."""

    @property
    def clock(self) -> Clock:
        """The clock that measurements use."""

    def send(self, vector: Vector, to: int, tag: int, number: int = 0) -> None:
        """Send a vector, which must not change until the answer to it has come."""

    def send_text(self, text: bytes, to: int, tag: int, number: int = 0) -> None:
        """Send bytes."""

    def look(self, source: int | None = None, tag: int | None = None) -> Arrived | None:
        """Give the next message of a source with a tag, or of any; None if none has arrived."""

    def wait(self, source: int | None = None) -> None:
        """Wait a while for any message.

        Raises TrialFailedError ("rank_lost") if `source` is gone and nothing more can come of it; a
        server may be back within its grace.
        """

    def losses(self, source: int) -> int:
        """How often a process that this one connects to was lost: it may not have had a message."""

    def take(self, message: Arrived, into: Vector) -> None:
        """Take a message whose vector has the length of `into`.

        Raises TrialFailedError ("protocol") if it has another.
        """

    def take_text(self, message: Arrived) -> bytes:
        """Take bytes."""

    def close(self) -> None:
        """Let the last messages leave, and end."""


def wait_for(post: Mailbox, source: int | None, *tags: int) -> Arrived:
    """Wait for a message of a source, or of any, with one of these tags, or with any.

    Raises TrialFailedError ("rank_lost") if the source is gone.
    """
    while True:
        for tag in tags or (None,):
            if (found := post.look(source, tag)) is not None:
                return found
        post.wait(source)
