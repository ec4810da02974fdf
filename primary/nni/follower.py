"""One trial of a run, followed in the history list."""

from collections.abc import Iterator
from dataclasses import dataclass

from aiperf.facts import EpochFacts
from aiperf.records.entries import TrialLedger
from aiperf.records.history_files import HistoryReader
from aiperf.records.ledger import Ledger
from aiperf.run_directory.paths import RunPaths


@dataclass(frozen=True, slots=True)
class End:
    """The end of a trial: its `result` for the search, or the reason of its `failure`.

    With neither, the trial was interrupted by the end of the run.
    """

    best_accuracy: float | None
    result: float | None = None
    failure: str | None = None


class Follower:
    """Reports the epochs and the end of a trial from the records of its replica and the primary."""

    def __init__(self, paths: RunPaths, trial: int, replica: int) -> None:
        self._reader = HistoryReader(paths, roles=("primary", f"replica-{replica:04d}"))
        self._ledger = Ledger(latest_progress_only=True)
        self._trial = trial
        self._reported = 0

    def look(self) -> Iterator[EpochFacts | End]:
        """Take in the news since the last look; the end comes last. Raises OSError."""
        for batch in self._reader.read_files():
            self._ledger.add(batch.records)
        entry = self._ledger.trial(self._trial)
        for number in sorted(number for number in entry.epochs if number > self._reported):
            self._reported = number
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
