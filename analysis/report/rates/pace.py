"""The pace of the work: the time that each counted epoch took, on its replica."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from aiperf.history.bodies import TrialStarted, WorkloadStarted
from aiperf.history.entries import TrialLedger, when
from aiperf.rules.score import TrialWork, images_done
from analysis.reading.run_data import RunData
from analysis.report.moments.columns import code, moments_of

TOGETHER_MS = 10_000
"""Shorter epochs are looked at together: the agent notes a short epoch's end late by as much."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive work of one trial that counts. Times are on the primary's clock."""

    replica: int
    trial: int
    first_epoch: int
    begin_ms: int
    end_ms: int
    images: int
    """Trained and evaluated."""
    operations: int

    @property
    def duration_ms(self) -> int:
        """Its length; 0 if its end is not after its beginning."""
        return max(0, self.end_ms - self.begin_ms)


def stretches(data: RunData) -> dict[int, list[Stretch]]:
    """One stretch for each epoch that counts, by trial; an epoch that the end cut short comes last.

    An epoch begins when the one before it ended. The first one begins with the trial's first phase
    of training, or with its record if there is none.
    """
    begins = _training_begins(data)
    found = {}
    for number, work in data.work.items():
        entry = data.ledger.trials[number]
        if entry.begun is not None and entry.started_ms is not None:
            began_ms = begins.get(number, data.ledger.corrected(entry.writer, entry.started_ms))
            own = list(_of_trial(entry, work, began_ms, data.end_ms))
            if own:
                found[number] = own
    return found


def trained_of(begun: TrialStarted | WorkloadStarted) -> str:
    """What a trial trains, in words; trials with the same text do the same work for an image."""
    if isinstance(begun, TrialStarted):
        return f"architecture {begun.architecture}"
    return f"workload {begun.workload}, size {begun.size}"


def sustained_ops(own: Sequence[Stretch]) -> float | None:
    """Operations per second from the beginning of the first stretch to the end of the last one."""
    span_ms = max((piece.end_ms for piece in own), default=0) - min((piece.begin_ms for piece in own), default=0)
    return sum(piece.operations for piece in own) * 1000 / span_ms if span_ms > 0 else None


def _training_begins(data: RunData) -> dict[int, int]:
    """The time of each trial's first phase of training."""
    begins: dict[int, int] = {}
    for replica in data.ledger.replicas.values():
        for writer in replica.writers:
            own = moments_of(replica, writer, data.ledger.offsets_ms.get(writer, 0))
            own = own.only((own.phases == code("train")) & (own.trials >= 0))
            trials, first = np.unique(own.trials, return_index=True)  # they are in order of time
            for trial, began_ms in zip(trials.tolist(), own.times_ms[first].tolist(), strict=True):
                begins[trial] = min(began_ms, begins.get(trial, began_ms))
    return begins


def _of_trial(entry: TrialLedger, work: TrialWork, began_ms: int, end_ms: int) -> Iterator[Stretch]:
    assert entry.begun is not None
    replica, trial = entry.begun.replica, entry.trial
    trained = evaluated = last_epoch = 0
    for epoch in sorted(work.epochs, key=when):
        body = epoch.body
        operations = work.cost.work(body.images_trained, body.images_evaluated)
        images = body.images_trained + body.images_evaluated
        yield Stretch(replica, trial, body.epoch, began_ms, epoch.time_ms, images, operations)
        began_ms, last_epoch = epoch.time_ms, body.epoch
        trained, evaluated = trained + body.images_trained, evaluated + body.images_evaluated
    if not work.progress:
        return
    all_trained, all_evaluated = images_done(work, end_ms)
    images = all_trained + all_evaluated - trained - evaluated
    if images:
        last_ms = max(report.time_ms for report in work.progress)
        operations = work.cost.work(all_trained - trained, all_evaluated - evaluated)
        yield Stretch(replica, trial, last_epoch + 1, began_ms, last_ms, images, operations)


def together(found: Iterable[Stretch]) -> list[Stretch]:
    """The stretches of one trial, put together until each lasts at least 10 s."""
    pieces: list[Stretch] = []
    for piece in found:
        if pieces and min(pieces[-1].duration_ms, piece.duration_ms) < TOGETHER_MS:
            pieces[-1] = _joined(pieces[-1], piece)
        else:
            pieces.append(piece)
    return pieces


def _joined(one: Stretch, other: Stretch) -> Stretch:
    return Stretch(
        one.replica, one.trial, one.first_epoch, one.begin_ms, max(one.end_ms, other.end_ms),
        one.images + other.images, one.operations + other.operations,
    )  # fmt: skip
