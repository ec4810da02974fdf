"""A run directory read into tables: one ledger, the cost of every architecture, the moments of start and end."""

from __future__ import annotations

from dataclasses import dataclass

from aiperf.errors import ArchitectureError
from aiperf.history import HistoryReader
from aiperf.ledger import Ledger, TrialLedger
from aiperf.manifest import Manifest, read_manifest
from aiperf.models import ArchitectureStore
from aiperf.operations import NOTHING, Operations, count
from aiperf.paths import RunPaths
from aiperf.score import TrialWork


@dataclass(frozen=True)
class RunData:
    """What the records of a run say. Times are UTC milliseconds on the primary's clock."""

    manifest: Manifest
    ledger: Ledger
    costs: dict[str, Operations]
    damages: tuple[str, ...]
    unfinished_lines: tuple[str, ...]
    start_ms: int | None
    end_ms: int
    ended: str

    @property
    def duration_ms(self) -> int:
        """From the release of the replicas to the end; 0 where they never were released."""
        return max(0, self.end_ms - self.start_ms) if self.start_ms is not None else 0

    def work_of(self, trial: TrialLedger) -> TrialWork:
        """What a trial did. Nothing where its architecture cannot be read (which is among the damages)."""
        cost = self.costs.get(trial.started.architecture, NOTHING) if trial.started else NOTHING
        return self.ledger.work(trial, cost)


def read_run(paths: RunPaths, now_ms: int | None = None) -> RunData:
    """Read a run. `now_ms` is the end to assume for a run that has none yet (default: its last record).

    Raises RunDirectoryError where it is no run.
    """
    manifest = read_manifest(paths)
    reader = HistoryReader(paths)
    batch = reader.read_new()
    ledger = Ledger()
    ledger.add(batch.records)
    costs, missing = _costs(ledger, ArchitectureStore(paths))
    end_ms, ended = _end(ledger, now_ms)
    return RunData(
        manifest=manifest,
        ledger=ledger,
        costs=costs,
        damages=(*map(str, batch.damages), *ledger.conflicts, *missing),
        unfinished_lines=tuple(reader.unfinished()),
        start_ms=ledger.released[0] if ledger.released else None,
        end_ms=end_ms,
        ended=ended,
    )


def _end(ledger: Ledger, now_ms: int | None) -> tuple[int, str]:
    if ledger.run_ended is not None:
        body = ledger.run_ended[1]
        return body.end_ms, body.reason
    end_ms = ledger.last_ms if now_ms is None else now_ms
    if ledger.released is not None:
        end_ms = min(end_ms, ledger.released[0] + ledger.released[1].duration_ms)
    return end_ms, "unfinished"


def _costs(ledger: Ledger, store: ArchitectureStore) -> tuple[dict[str, Operations], list[str]]:
    costs: dict[str, Operations] = {}
    missing: list[str] = []
    for name in sorted({trial.started.architecture for trial in ledger.trials.values() if trial.started}):
        try:
            costs[name] = count(store.load(name)).operations
        except ArchitectureError as error:
            missing.append(str(error))
    return costs, missing
