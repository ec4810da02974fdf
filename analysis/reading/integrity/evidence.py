"""Evidence of epochs: the rows of their steps against their records.

A file that contradicts its records is a damage. An epoch whose record names no evidence, because
its trainer could not write it, makes a run unofficial: the rule `evidence`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from aiperf.errors import RunDirectoryError
from aiperf.records.bodies import EpochCompleted, TrialStarted
from aiperf.records.columns import EPOCH, Epochs, TrialEpochs, places_of
from aiperf.records.damage import Damage
from aiperf.records.entries import TrialLedger
from aiperf.records.ledger import Ledger
from aiperf.records.lineage import resumed_trial, trial_and_earlier
from aiperf.run_directory.paths import RunPaths
from aiperf.run_directory.step_evidence import hash_rows, read_rows
from analysis.reading.integrity.view import Placed, RunView, TrialTrace, placed_epoch
from analysis.reading.workers import Workers

CHUNK = 16
"""Trials whose files are read in one task."""

MEAN_TOLERANCE = 1e-4
"""Relative difference between an epoch's loss and the mean of its rows: these are float32."""

MOST_STEPS = 1 << 24
"""Steps that are counted exactly in float32, in which a row has its number."""


@dataclass(frozen=True, slots=True)
class EpochRows:
    """The epochs of a trial whose records name rows.

    `per_step`: images of all ranks in a step; None if the rows are not compared with the images.
    """

    trial: int
    per_step: int | None
    file: str
    columns: Epochs

    @property
    def epochs(self) -> Iterator[Placed[EpochCompleted]]:
        """The epochs, as objects."""
        return (self.epoch(row) for row in range(len(self.columns)))

    def epoch(self, row: int) -> Placed[EpochCompleted]:
        """One of the epochs, as an object."""
        return placed_epoch(self.file, self.columns, row)

    def number(self, row: int) -> int:
        """The number of one of the epochs."""
        return int(self.columns.column(EPOCH)[row])


def rows_of(trace: TrialTrace[TrialStarted], view: RunView) -> Iterator[EpochRows]:
    """The rows that a trial's records name; none of a simulated run."""
    columns = named_rows(trace.completed)
    if view.config.training.trainer == "simulated" or not len(columns):
        return
    body = trace.started.body
    default = view.defaults()["batch_size"]
    batch = body.hyperparameters.get("batch_size", default)
    if not isinstance(batch, int):  # a damage of its own: the space has no such value
        batch = default
    if trace.built:
        ranks = len(trace.built[-1].body.devices)
    else:
        arrivals = view.primary.arrivals.get(trace.writer, ())
        ranks = arrivals[-1].body.accelerators if arrivals else 1
    yield EpochRows(trace.trial, max(1, int(batch)) * max(1, ranks), trace.started.file, columns)


def named_rows(epochs: Epochs) -> Epochs:
    """The epochs whose records name rows."""
    return epochs.only(epochs.hashes[:, 0] != b"")


def check_copies(claims: Sequence[EpochRows], view: RunView) -> Iterator[Damage]:
    """Rows and weights that are those of another epoch.

    With the same seed and number they may be: the epoch was repeated.
    """
    seeds = {trial: jobs[0].body.seed for trial, jobs in view.primary.issued.items()}
    first: dict[bytes, tuple[EpochRows, int]] = {}
    for claim in claims:
        for row, hashes in enumerate(claim.columns.hashes.tolist()):
            for what, digest in zip(("steps", "weights"), hashes, strict=True):
                if not digest:
                    continue
                known, number = first.setdefault(digest, (claim, row))
                if (known, number) == (claim, row):
                    continue
                same = seeds.get(known.trial) == seeds.get(claim.trial)
                if not same or known.number(number) != claim.number(row):
                    place, other = claim.epoch(row), _named(known.epoch(number))
                    found = f"the {what} of epoch {place.body.epoch} of trial {claim.trial} are those of {other}"
                    yield place.damage("evidence", found, f"{what} of its own")


def _named(place: Placed[EpochCompleted]) -> str:
    return f"epoch {place.body.epoch} of trial {place.body.trial}"


def check_states(view: RunView) -> Iterator[Damage]:
    """Trainings that were resumed from another state than the one after the epoch before."""
    traces: list[TrialTrace[Any]] = [*view.trials.values(), *view.models.values()]
    for trace in traces:
        for row in places_of(trace.completed.further != None):  # noqa: E711  # of every element
            place = placed_epoch(trace.started.file, trace.completed, row)
            if (resumed := place.body.resumed) is None:
                continue
            kept = _states_after(place.body.epoch - 1, trace.started.body.resumes, view.ledger) if row == 0 else set()
            if resumed not in kept:
                found = f"trial {trace.trial} was resumed from a state with the hash {resumed}"
                yield place.damage("evidence", found, f"{', '.join(sorted(kept)) or 'none'}, as recorded before")


def _states_after(epoch: int, trial: int | None, ledger: Ledger) -> set[str]:
    """The states that were kept after an epoch of the trials that one resumes."""
    found: set[str] = set()
    for number in trial_and_earlier(trial, partial(resumed_trial, ledger)):
        entry = ledger.trials.get(number)
        own = entry.epochs.get(epoch) if entry is not None and entry.begun is not None else None
        if own is not None and own.body.state is not None:
            found.add(own.body.state)
    return found


def check_rows(claims: Sequence[EpochRows], paths: RunPaths, ended: bool, workers: Workers) -> Iterator[Damage]:
    """Files that are missing, once the run has ended; rows that are not those of their epoch."""
    chunks = [claims[start : start + CHUNK] for start in range(0, len(claims), CHUNK)]
    for future in [workers.submit(_check_all, paths, chunk, ended) for chunk in chunks]:
        yield from future.result()


def _check_all(paths: RunPaths, claims: Sequence[EpochRows], ended: bool) -> list[Damage]:
    return [damage for claim in claims for damage in _check(paths, claim, ended)]


def _check(paths: RunPaths, claim: EpochRows, ended: bool) -> Iterator[Damage]:
    file = paths.evidence(claim.trial)
    name = str(file.relative_to(paths.root))
    if not file.is_file():
        if ended:
            found = f"the rows of {len(claim.columns)} epoch(s) of trial {claim.trial} are missing"
            yield Damage(name, None, "missing", found)
        return
    try:
        by_epoch = read_rows(file)
    except RunDirectoryError as error:
        yield Damage(name, None, "evidence", str(error))
        return
    for place in claim.epochs:
        rows = by_epoch.get(place.body.epoch)
        where = f"the rows of epoch {place.body.epoch} in {name}"
        if rows is None:
            yield place.damage("evidence", f"{where} are not there", f"{place.body.evidence}, their hash")
        elif (digest := hash_rows(rows)) != place.body.evidence:
            yield place.damage("evidence", f"{where} have the hash {digest}", f"{place.body.evidence}")
        elif claim.per_step is not None:
            yield from _contradictions(place, where, rows, claim.per_step)


def _contradictions(place: Placed[EpochCompleted], where: str, rows: NDArray[Any], per_step: int) -> Iterator[Damage]:
    images = place.body.images_trained
    steps = math.ceil(images / per_step)
    if len(rows) != steps or steps > MOST_STEPS or not np.array_equal(rows["step"], np.arange(1, steps + 1)):
        found = f"{where} are {len(rows)}"
        yield place.damage("evidence", found, f"steps 1 to {steps}, of {images} images, {per_step} a step")
        return
    weights = np.full(steps, per_step, dtype=np.float64)
    # Each step's mean loss counts by its images, of which only the last step of an epoch has fewer.
    weights[-1] = images - per_step * (steps - 1)
    mean = float((rows["loss"].astype(np.float64) * weights).sum() / images) if images > 0 else math.nan
    if not abs(mean - place.body.loss) <= MEAN_TOLERANCE * abs(mean):  # also of a NaN
        yield place.damage("evidence", f"{where} have the mean loss {mean:.7g}", f"{place.body.loss:.7g}, the epoch's")


class Unevidenced(Sequence[str]):
    """Trials that leave out their model or their plan, and epochs without hashes, in words.

    There may be as many as epochs: each is worded when it is looked at.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._trials = [entry for _, entry in sorted(ledger.trials.items()) if entry.epochs]
        self._count = sum(len(list(_leaves_out(entry))) + _lacking(entry.epochs) for entry in self._trials)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for entry in self._trials:
            yield from _leaves_out(entry)
            for epoch, missing in _without_hashes(entry.epochs):
                names = [name for name, lacks in zip(("evidence", "weights"), missing, strict=True) if lacks]
                yield f"epoch {epoch} of trial {entry.trial} has no hash of its {' and '.join(names)}"

    @overload
    def __getitem__(self, wanted: int) -> str: ...

    @overload
    def __getitem__(self, wanted: slice) -> Sequence[str]: ...

    def __getitem__(self, wanted: int | slice) -> str | Sequence[str]:
        if isinstance(wanted, int):
            return next(islice(self, range(len(self))[wanted], None))
        return list(islice(self, *wanted.indices(len(self))))


def _leaves_out(trial: TrialLedger) -> Iterator[str]:
    """Name, in words, the facts that a trial with epochs leaves out."""
    if (first := min(trial.epochs)) > 1 and trial.epochs[first].body.resumed is None:
        yield f"trial {trial.trial} does not name the state that it was resumed from"
    if trial.built is None:
        yield f"trial {trial.trial} does not say what it built"
    if trial.started is not None and trial.started.cursor is None:
        yield f"trial {trial.trial} does not name the records that it was planned from"


def _lacking(epochs: TrialEpochs) -> int:
    """Epochs that lack a hash."""
    return int((epochs.rows.hashes == b"").any(axis=1).sum())


def _without_hashes(epochs: TrialEpochs) -> list[tuple[int, list[bool]]]:
    """Epochs that lack a hash, by number, and which of both each lacks."""
    missing = epochs.rows.hashes == b""
    rows = np.flatnonzero(missing.any(axis=1))
    return sorted(zip(epochs.rows.column(EPOCH)[rows].tolist(), missing[rows].tolist(), strict=True))
