"""The primary's witness of a replica's records, kept in the primary's own file at its own times.

A replica reports the number and the hash of its records over its pipe. A file that is written,
changed or cut afterwards does not fit what the primary heard.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Literal

from aiperf.errors import MessageError, StorageError
from aiperf.records.bodies import EpochWitnessed, TrialClosed
from aiperf.records.history_files import HistoryWriter
from aiperf.wire.messages import CANCELLED, Closing, Finished, Recorded, Started
from primary.digest import DigestKeeper
from primary.replica_link import JobEvent, ReplicaGoneError, ReplicaLink

log = logging.getLogger(__name__)

How = Literal["completed", "failed", "cancelled", "stopped", "lost"]

LAST_WORDS_S = 2.0
"""Longest wait for the messages that an ended replica has left in its pipe."""

_DIGEST = re.compile("[0-9a-f]{64}")


class Witness:
    """Witnesses the file of one replica, from one job to the next.

    Every trial that was issued is closed once. All methods that record raise StorageError if
    they cannot.
    """

    def __init__(self, history: HistoryWriter, stopping: asyncio.Event, digest: DigestKeeper | None = None) -> None:
        self._history = history
        self._digest = digest or DigestKeeper()
        self._stopping = stopping
        """Set at the end of the run."""
        self._writer = ""
        self._head: tuple[int, str] | None = None
        """The last record of the writer that was heard of."""
        self._trial: int | None = None
        self._epoch = 0
        self.ended: Finished | None = None
        """End of the last trial, as its replica reported it; None: it has not."""
        self.on_started: Callable[[Started], None] = lambda _: None
        """Called with what the replica says of the start of a trial, also among its last words."""

    def welcome(self, writer: str) -> None:
        """Begin with the file that the replica writes from now on."""
        self._writer, self._head = writer, None

    def issued(self, trial: int) -> None:
        """Note that the replica gets this trial."""
        self._trial, self._epoch, self.ended = trial, 0, None

    def take(self, event: JobEvent) -> None:
        """Take a report of the replica; one that is not about its records changes nothing.

        Raises ReplicaGoneError if the report does not fit the trial in progress or what was heard
        before.
        """
        if type(event) is Started:
            self.on_started(event)
        elif type(event) is Recorded:
            self._recorded(event)
        elif type(event) is Finished:
            self._finished(event)
        elif type(event) is Closing:
            self._closing(event)

    async def hear_out(self, link: ReplicaLink) -> None:
        """Take the reports that still come until the replica ends."""
        async for event in link.drain():
            self.take(event)

    async def conclude(self, link: ReplicaLink | None) -> None:
        """Take what an ended replica has left in its pipe; a trial that is open then is lost."""
        if link is not None:
            try:
                # A node that vanished may hold the pipe open for minutes.
                async with asyncio.timeout(LAST_WORDS_S):
                    await self.hear_out(link)
            except StorageError:
                raise
            except (TimeoutError, MessageError, ReplicaGoneError):
                pass  # it has nothing more to say
            except Exception:
                log.exception("the last words of a replica cannot be read")
        self._close("lost")

    def _recorded(self, message: Recorded) -> None:
        self._check_trial(message.trial)
        # Epochs of a trial come in order. One that comes again could hide another record behind the
        # first one.
        if message.epoch <= self._epoch:
            raise ReplicaGoneError(f"the replica reports epoch {message.epoch} of trial {message.trial} again")
        self._hear(message.sequence, message.digest)
        self._epoch = message.epoch
        self._history.append(
            EpochWitnessed(
                trial=message.trial,
                epoch=message.epoch,
                writer=self._writer,
                sequence=message.sequence,
                digest=message.digest,
            )
        )
        self._digest.epoch(message.trial, message.epoch, message.quality)

    def _finished(self, message: Finished) -> None:
        self._check_trial(message.trial)
        self._hear(message.sequence, message.digest)
        how: How = "completed" if message.completed else "cancelled" if message.kind == CANCELLED else "failed"
        self._close(how, message)
        self.ended = message

    def _closing(self, message: Closing) -> None:
        if message.trial is not None:
            self._check_trial(message.trial)
        self._hear(message.sequence, message.digest)
        if self._stopping.is_set():  # else the replica ends by itself, and its trial with it
            self._close("stopped")

    def _check_trial(self, trial: int) -> None:
        if trial != self._trial:
            now = "no trial" if self._trial is None else f"trial {self._trial}"
            raise ReplicaGoneError(f"the replica reports trial {trial}, and {now} is in progress")

    def _hear(self, sequence: int | None, digest: str | None) -> None:
        if sequence is None or digest is None:
            return
        if _DIGEST.fullmatch(digest) is None or sequence < 0:
            raise ReplicaGoneError(f"the replica reports record {sequence} with the hash {digest[:100]!r}")
        # The head itself may be reported again, by an end without further records. An earlier
        # record, or another one of the same number, means that the file was written anew.
        if self._head is not None and sequence <= self._head[0] and (sequence, digest) != self._head:
            raise ReplicaGoneError(f"the replica reports record {sequence} after another record {self._head[0]}")
        self._head = sequence, digest

    def _close(self, how: How, message: Finished | None = None) -> None:
        if self._trial is None:
            return
        sequence, digest = self._head or (None, None)
        self._history.append(
            TrialClosed(trial=self._trial, how=how, writer=self._writer, sequence=sequence, digest=digest)
        )
        self._enter_end(self._trial, how, message)
        self._trial = None

    def _enter_end(self, trial: int, how: How, message: Finished | None) -> None:
        if message is None:
            self._digest.over(trial, "stopped" if how == "stopped" else "lost")
        elif message.completed:
            self._digest.over(trial, "early_stop" if message.early else "completed", "", message.predicted)
        else:
            self._digest.over(trial, "failed", message.kind)
