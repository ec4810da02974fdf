"""The contract of evidence: the questions of a search to the records of a run."""

from __future__ import annotations

from typing import Protocol

from aiperf.records.cursor import Cursor
from replica.search.outcomes import OutcomeTable, Start


class Evidence(Protocol):
    """The knowledge of a run's trials, which only `read` changes, and which only grows.

    Its methods are for one thread at a time.
    """

    def read(self) -> None:
        """Take in what is new. Raises OSError, and DigestDamagedError if it cannot be relied on."""

    def outcomes(self) -> OutcomeTable:
        """The outcomes of all trials."""

    def cursor(self) -> Cursor:
        """The place up to which was read."""

    def is_current(self, cursor: Cursor, replica: int) -> bool:
        """True if an earlier cursor knows the last trial that a replica has started."""

    def is_superseded(self, claim: int) -> bool:
        """True if a primary with a higher claim has recorded anything."""

    def started(self, trial: int) -> Start | None:
        """The start of a trial, if it has started."""

    def mentions(self, trial: int) -> bool:
        """True if anything is known of a trial beyond its job."""

    def initial_is_due(self, architecture: str, trial: int) -> bool:
        """True if a trial is to train the initial architecture, of this hash.

        It is not if a trial of it has completed an epoch or is in progress, nor as long as an
        earlier trial, which may choose it, has not started.
        """

    def qualities(self, trial: int) -> dict[int, float]:
        """The quality after each epoch of a training, by epoch, with those of trials it resumes.

        An epoch without a quality has 0.
        """
