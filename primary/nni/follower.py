"""One trial of a run, followed in the history list."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aiperf.facts import EpochFacts
from aiperf.history.files import HistoryReader
from aiperf.history.ledger import Ledger, TrialLedger
from aiperf.run_directory.paths import RunPaths


@dataclass(frozen=True, slots=True)
class End:
    """How a trial ended. `result` is what the search gets; `failure` is why it failed.

    With neither, the end of the run has broken it off.
    """

    best_accuracy: float | None
    result: float | None = None
    failure: str | None = None


class Follower:
    """Tells the epochs of a trial as they come, and its end. Reads its replica's and the primary's records only."""

    def __init__(self, paths: RunPaths, trial: int, replica: int) -> None:
        self._reader = HistoryReader(paths, roles=("primary", f"replica-{replica:04d}"))
        self._ledger = Ledger(latest_progress_only=True)
        self._trial = trial
        self._told = 0

    def look(self) -> Iterator[EpochFacts | End]:
        """What is new since the last look; nothing follows the end. Raises OSError."""
        for batch in self._reader.read_files():
            self._ledger.add(batch.records)
        entry = self._ledger.trial(self._trial)
        for number in sorted(number for number in entry.epochs if number > self._told):
            self._told = number
            yield entry.epochs[number].body
        end = self._end(entry)
        if end is not None:
            yield end

    def _end(self, entry: TrialLedger) -> End | None:
        if entry.failed is not None:
            return End(entry.accuracy, failure=f"{entry.failed.body.kind}: {entry.failed.body.reason}")
        if entry.ended is not None:
            stopped = entry.ended.body.reason == "stopped"
            return End(entry.accuracy, None if stopped else entry.search_accuracy)
        if self._ledger.died_ms(entry) is not None:
            return End(entry.accuracy, failure="its replica or its primary was lost")
        return None
