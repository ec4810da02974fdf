"""Evidence of epochs: the rows of their steps against their records.

A file that contradicts its records is a damage. An epoch whose record names no evidence, because
its trainer could not write it, makes a run unofficial: the rule `evidence`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.errors import RunDirectoryError
from aiperf.history.bodies import EpochCompleted, TrialStarted
from aiperf.history.damage import Damage
from aiperf.history.ledger import Ledger
from aiperf.run_directory.evidence import hash_rows, read_rows
from aiperf.run_directory.paths import RunPaths
from analysis.reading.integrity.heard.placed import Placed
from analysis.reading.integrity.traces import TrialTrace
from analysis.reading.integrity.view import RunView
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
    epochs: tuple[Placed[EpochCompleted], ...]


def rows_of(trace: TrialTrace[TrialStarted], view: RunView) -> Iterator[EpochRows]:
    """The rows that a trial's records name; none of a simulated run."""
    epochs = tuple(place for place in trace.epochs if place.body.evidence is not None)
    if not epochs or view.config.training.trainer == "simulated":
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
    yield EpochRows(trace.trial, max(1, int(batch)) * max(1, ranks), epochs)


def check_copies(claims: Sequence[EpochRows], view: RunView) -> Iterator[Damage]:
    """Rows that are those of another training. With the same seed they may be: it was repeated."""
    seeds = {trial: jobs[0].body.seed for trial, jobs in view.primary.issued.items()}
    first: dict[str, Placed[EpochCompleted]] = {}
    for claim in claims:
        for place in claim.epochs:
            known = first.setdefault(place.body.evidence or "", place)
            if seeds.get(known.body.trial) != seeds.get(claim.trial):
                found = f"the steps of epoch {place.body.epoch} of trial {claim.trial} are those of {_named(known)}"
                yield place.damage("evidence", found, "steps of its own")


def _named(place: Placed[EpochCompleted]) -> str:
    return f"epoch {place.body.epoch} of trial {place.body.trial}"


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
            found = f"the rows of {len(claim.epochs)} epoch(s) of trial {claim.trial} are missing"
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
    weights[-1] = images - per_step * (steps - 1)
    mean = float((rows["loss"].astype(np.float64) * weights).sum() / images) if images > 0 else math.nan
    if not abs(mean - place.body.loss) <= MEAN_TOLERANCE * abs(mean):  # also of a NaN
        yield place.damage("evidence", f"{where} have the mean loss {mean:.7g}", f"{place.body.loss:.7g}, the epoch's")


def without_evidence(ledger: Ledger) -> tuple[str, ...]:
    """Trials that leave out their model or their plan, and epochs without hashes, in words."""
    found = []
    for number, trial in sorted(ledger.trials.items()):
        if trial.epochs and trial.built is None:
            found.append(f"trial {number} does not say what it built")
        if trial.epochs and trial.started is not None and trial.started.cursor is None:
            found.append(f"trial {number} does not name the records that it was planned from")
        for epoch, item in sorted(trial.epochs.items()):
            names = [name for name in ("evidence", "weights") if getattr(item.body, name) is None]
            if names:
                found.append(f"epoch {epoch} of trial {number} has no hash of its {' and '.join(names)}")
    return tuple(found)
