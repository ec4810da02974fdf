"""One trial of a run, followed in the history list."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aiperf.history.files import HistoryReader
from aiperf.history.ledger import Ledger, TrialLedger, last_of_all
from aiperf.history.records import EpochCompleted
from aiperf.paths import RunPaths


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch that was completed. `accuracy` is top-1 on the validation images."""

    epoch: int
    accuracy: float
    loss: float
    validation_loss: float
    learning_rate: float


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
        self._ledger = Ledger(moment=last_of_all)
        self._trial = trial
        self._told = 0

    def look(self) -> Iterator[Epoch | End]:
        """What is new since the last look; nothing follows the end. Raises OSError."""
        for batch in self._reader.read_files():
            self._ledger.add(batch.records)
        entry = self._ledger.trial(self._trial)
        for number in sorted(number for number in entry.epochs if number > self._told):
            self._told = number
            yield _epoch(entry.epochs[number][1])
        end = self._end(entry)
        if end is not None:
            yield end

    def _end(self, entry: TrialLedger) -> End | None:
        if entry.failed is not None:
            return End(entry.accuracy, failure=f"{entry.failed[1].kind}: {entry.failed[1].reason}")
        if entry.ended is not None:
            stopped = entry.ended[1].reason == "stopped"
            return End(entry.accuracy, None if stopped else entry.search_accuracy)
        if self._ledger.died_ms(entry) is not None:
            return End(entry.accuracy, failure="its replica or its primary was lost")
        return None


def _epoch(body: EpochCompleted) -> Epoch:
    return Epoch(body.epoch, body.accuracy or 0.0, body.loss, body.validation_loss, body.learning_rate)
