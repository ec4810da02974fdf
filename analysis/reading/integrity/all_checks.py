"""All checks of a run's records, in one pass over its files."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from aiperf.records.bodies import TrialStarted
from aiperf.records.damage import Damage
from aiperf.records.ledger import Ledger
from aiperf.run_directory.manifest import Manifest
from aiperf.run_directory.paths import RunPaths
from analysis.reading.architectures import Architectures, Claim
from analysis.reading.integrity.architectures import check_claims, check_origins, claims_of
from analysis.reading.integrity.bounds import check_ends, check_predictions, check_training
from analysis.reading.integrity.clocks import check_arrival, check_arrivals, check_losses, check_moments
from analysis.reading.integrity.digests import check_digests
from analysis.reading.integrity.evidence import EpochRows, check_copies, check_rows, check_states, rows_of
from analysis.reading.integrity.exchanges import check_exchanges
from analysis.reading.integrity.facts import check_facts, check_hyperparameters
from analysis.reading.integrity.files import check_cursors, check_fences, check_foreign, check_missing, check_versions
from analysis.reading.integrity.jobs import check_jobs, check_start, check_turns, check_unstarted
from analysis.reading.integrity.science import (
    check_model_ends,
    check_model_facts,
    check_model_jobs,
    check_model_start,
    check_model_training,
    check_same_terms,
    check_workload_images,
    rows_of_model,
)
from analysis.reading.integrity.traces import traces_of
from analysis.reading.integrity.view import PrimaryRecords, RunView, TrialTrace, WriterRecords, summary_of
from analysis.reading.integrity.witness import (
    check_closing,
    check_closings,
    check_late,
    check_unclosed,
    check_witnesses,
)
from analysis.reading.workers import Workers

TRIAL_CHECKS: tuple[Callable[[TrialTrace[Any], RunView], Iterator[Damage]], ...] = (
    check_start,
    check_facts,
    check_exchanges,
    check_closing,
)
"""Checks of a trial's records, against those of the primary."""

MODEL_CHECKS: tuple[Callable[[TrialTrace[Any], RunView], Iterator[Damage]], ...] = (
    check_model_start,
    check_model_facts,
    check_exchanges,
    check_closing,
)
"""Checks of a scientific trial's records, against those of the primary."""

RUN_CHECKS: tuple[Callable[[RunView], Iterator[Damage]], ...] = (
    check_moments,
    check_arrivals,
    check_losses,
    check_turns,
    check_unclosed,
    check_late,
    check_fences,
    check_states,
)
"""Checks of a run whose files are all read."""

AUTOML_CHECKS: tuple[Callable[[RunView], Iterator[Damage]], ...] = (check_jobs, check_ends)
"""Further checks of a run of AutoML."""

SCIENCE_CHECKS: tuple[Callable[[RunView], Iterator[Damage]], ...] = (
    check_model_jobs,
    check_model_ends,
    check_same_terms,
    check_workload_images,
)
"""Further checks of a run of scientific workloads."""


class Inspection:
    """Takes in the files of a run, the primaries' first, and finds all damages.

    The ledger must have the records of a file before it is added. Records that do not count
    (`analysis.reading.uncounted`) are left out before, their lines are not. Records without a
    chain are those of an earlier version, which kept less: only their lines, their numbers and
    their files are checked.
    """

    def __init__(self, paths: RunPaths, manifest: Manifest, ledger: Ledger) -> None:
        self._paths = paths
        self._damages: list[Damage] = []
        self._of_chained: list[Damage] = []
        """Damages only if the whole run is chained."""
        self._rows: list[EpochRows] = []
        self._claims: dict[Claim, TrialTrace[TrialStarted]] = {}
        self.view = RunView(manifest, ledger, PrimaryRecords())

    def add(self, read: WriterRecords) -> None:
        """Take in the next file."""
        self._damages += [*read.damages, *read.lines.damages]
        if read.writer.startswith("primary-"):
            self.view.primary.add(read)
            return
        self.view.writers[read.writer] = summary_of(read)
        if read.lines.chained:
            # Kept apart, because a later file may show that the run is not chained as a whole.
            self._of_chained += self._of_replica(read)

    def _of_replica(self, read: WriterRecords) -> Iterator[Damage]:
        view = self.view
        traces = traces_of(read, view.is_science)
        yield from traces.damages
        yield from (check_model_training if view.is_science else check_training)(traces, view)
        for trace in traces.trials:
            if view.is_science:
                view.models.setdefault(trace.trial, trace)
            else:
                view.trials.setdefault(trace.trial, trace)
            for check in MODEL_CHECKS if view.is_science else TRIAL_CHECKS:
                yield from check(trace, view)
            self._rows += rows_of_model(trace, view) if view.is_science else rows_of(trace, view)
        yield from check_unstarted(traces, view)
        yield from check_arrival(read, view)
        yield from check_witnesses(read, traces, view)
        yield from check_closings(read, view)

    def claims(self) -> Collection[Claim]:
        """Claims about the making of architectures, once all files are added."""
        if self.view.chained and not self.view.is_science:
            self._claims = claims_of(self.view)
        return self._claims

    def damages(self, architectures: Architectures, workers: Workers) -> tuple[Damage, ...]:
        """All damages, in the order of files and lines. `architectures` were read with `claims`."""
        found = [*self._damages, *check_missing(self.view), *check_versions(self.view)]
        if self.view.chained:
            found += self._of_chained
            found += check_foreign(self.view)
            for check in (*RUN_CHECKS, *(SCIENCE_CHECKS if self.view.is_science else AUTOML_CHECKS)):
                found += check(self.view)
            found += check_copies(self._rows, self.view)
            found += check_rows(self._rows, self._paths, not self.view.unfinished, workers)
            if not self.view.is_science:
                found += self._of_search(architectures, workers)
        return in_order([*found, *_conflicts(self.view.ledger, found)])

    def _of_search(self, architectures: Architectures, workers: Workers) -> Iterator[Damage]:
        """Damages of what a search plans: only a run of AutoML has them."""
        yield from check_digests(self.view, self._paths)
        yield from check_hyperparameters(self.view, self._paths)
        yield from check_predictions(self.view, workers)
        yield from check_cursors(self.view, self._paths, workers)
        yield from check_origins(self.view, architectures.found)
        yield from check_claims(self.view, self._claims, architectures.problems())


def _conflicts(ledger: Ledger, found: Iterable[Damage]) -> Iterator[Damage]:
    """Conflicts of the ledger at lines at which nothing else was found."""
    known = {(damage.file, damage.line) for damage in found}
    return (conflict for conflict in ledger.conflicts if (conflict.file, conflict.line) not in known)


def in_order(damages: Iterable[Damage]) -> tuple[Damage, ...]:
    """Each damage once, by file and line."""
    # Several checks may find the same damage. `sorted` is stable: those of one line stay in the
    # order of the checks.
    return tuple(sorted(dict.fromkeys(damages), key=lambda damage: (damage.file, damage.line or 0)))
