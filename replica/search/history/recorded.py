"""Evidence from the raw records of all writers: of runs and prefixes of runs without a digest."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Protocol

from aiperf.records.bodies import TrialStarted
from aiperf.records.cursor import Cursor
from aiperf.records.entries import TrialLedger
from aiperf.records.files import Batch
from aiperf.records.ledger import Ledger
from aiperf.records.lineage import qualities_of_training
from replica.search.initial import is_due
from replica.search.outcomes import Outcomes, OutcomeTable, Start

log = logging.getLogger(__name__)


class Source(Protocol):
    """A source of records: the files of a run, or records that were read before."""

    def read_files(self) -> Iterator[Batch]:
        """Yield records and damages since the last call, writer by writer."""

    def cursor(self) -> Cursor:
        """The place up to which every writer's records were read."""


class _LastStarts(dict[int, tuple[int, str, int]]):
    """The last trial by replica, with the writer and the number of its start."""

    def note(self, batch: Batch) -> None:
        """Take in new records."""
        for record in batch.records:
            if isinstance(record.body, TrialStarted):
                start = (record.body.trial, record.writer, record.sequence)
                # Files are read writer by writer: the last start read need not be the last one
                # made. Trial numbers are issued in order.
                self[record.body.replica] = max(start, self.get(record.body.replica, start))


class RecordedEvidence:
    """The evidence that the raw records give."""

    def __init__(self, source: Source) -> None:
        self._source = source
        # The search ignores progress inside epochs, and there are millions of reports of it.
        self._ledger = Ledger(latest_progress_only=True)
        self._outcomes = Outcomes(self._ledger)
        self._last_starts = _LastStarts()

    def read(self) -> None:
        """Take in new records; damaged ones are logged and left out. Raises OSError."""
        # File by file: if one cannot be read, what was read of the others is not lost.
        for batch in self._source.read_files():
            self._ledger.add(batch.records)
            self._outcomes.note(batch.records)
            self._last_starts.note(batch)
            for damage in batch.damages:
                log.error("damaged record in the history list: %s", damage)

    def outcomes(self) -> OutcomeTable:
        """The outcomes of all trials."""
        self._outcomes.renew()
        return self._outcomes

    def cursor(self) -> Cursor:
        """The place up to which was read."""
        return self._source.cursor()

    def is_current(self, cursor: Cursor, replica: int) -> bool:
        """See `Evidence`."""
        known, last = self._source.cursor().heads, self._last_starts.get(replica)
        if any(writer not in known or place > known[writer][0] for writer, (place, _) in cursor.heads.items()):
            return False
        return last is None or cursor.heads.get(last[1], (-1, ""))[0] >= last[2]

    def is_superseded(self, claim: int) -> bool:
        """See `Evidence`."""
        return claim < self._ledger.fences.claim

    def started(self, trial: int) -> Start | None:
        """The start of a trial, if it has started."""
        entry = self._ledger.trials.get(trial)
        return entry.started if entry is not None else None

    def mentions(self, trial: int) -> bool:
        """See `Evidence`."""
        entry = self._ledger.trials.get(trial, TrialLedger(trial))
        return entry != TrialLedger(trial, issued=entry.issued, issued_ms=entry.issued_ms)

    def initial_is_due(self, architecture: str, trial: int) -> bool:
        """See `Evidence`."""
        return is_due(self._ledger, architecture, trial)

    def qualities(self, trial: int) -> dict[int, float]:
        """See `Evidence`."""
        return qualities_of_training(self._ledger, trial)
