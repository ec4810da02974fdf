"""The epochs of a training over all trials that did a part of it: a trial and those it resumes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TypeVar

from aiperf.records.bodies import EpochCompleted
from aiperf.records.entries import TrialLedger
from aiperf.records.ledger import Ledger

T = TypeVar("T")


def epochs_of_training(ledger: Ledger, trial: int) -> dict[int, EpochCompleted]:
    """The epochs that made a trial's weights, by number.

    They are its own, and before them those of the trials of the same architecture that it resumes.
    A trial that has completed none yet may still repeat some of them.
    """
    parts = (
        {number: epoch.body for number, epoch in entry.epochs.items()} for entry in reversed(lineage_of(ledger, trial))
    )
    return joined(parts)


def first_ranks(ledger: Ledger, trial: int) -> int | None:
    """The number of ranks that trained the first of these epochs; None if there is none."""
    trained = (entry.built for entry in reversed(lineage_of(ledger, trial)) if entry.epochs and entry.built is not None)
    return next((len(built.devices) for built in trained), None)


def qualities_of_training(ledger: Ledger, trial: int) -> dict[int, float]:
    """The quality after each of these epochs; 0 if nothing was measured."""
    return {number: quality or 0.0 for number, quality in _qualities(ledger, trial).items()}


def best_quality(ledger: Ledger, trial: int) -> float | None:
    """Best measured quality of `epochs_of_training`; None if nothing was measured."""
    return max((quality for quality in _qualities(ledger, trial).values() if quality is not None), default=None)


def _qualities(ledger: Ledger, trial: int) -> dict[int, float | None]:
    return joined([entry.epochs.qualities() for entry in reversed(lineage_of(ledger, trial))])


def joined(parts: Iterable[Mapping[int, T]]) -> dict[int, T]:
    """Join the epochs of several trials; a later trial repeats those from its own first one on."""
    found: dict[int, T] = {}
    for own in parts:
        first = min(own, default=None)
        found = {number: value for number, value in found.items() if first is None or number < first} | dict(own)
    return dict(sorted(found.items()))


def lineage_of(ledger: Ledger, trial: int) -> list[TrialLedger]:
    """A trial, the trial that it resumes, and so on, as long as the architecture is the same."""
    chain: list[TrialLedger] = []
    for number in trial_and_earlier(trial, partial(resumed_trial, ledger)):
        entry = ledger.trials.get(number)
        if entry is None or entry.begun is None or (chain and _trained_by(entry) != _trained_by(chain[0])):
            break
        chain.append(entry)
    return chain


def trial_and_earlier(trial: int | None, resumed: Callable[[int], int | None]) -> Iterator[int]:
    """A trial, the trial that it resumes, and so on; none without one.

    `resumed` gives what a trial resumes, if it is known to resume any.
    """
    while trial is not None:
        yield trial
        earlier = resumed(trial)
        # Ids grow; records that contradict this must not lead around in a circle.
        trial = earlier if earlier is not None and earlier < trial else None


def resumed_trial(ledger: Ledger, trial: int) -> int | None:
    """The trial that a trial resumes, by the record of its start."""
    entry = ledger.trials.get(trial)
    return entry.begun.resumes if entry is not None and entry.begun is not None else None


def _trained_by(entry: TrialLedger) -> tuple[object, ...]:
    """Key of the thing that a trial trains: an architecture, or one model of a workload."""
    if entry.workload is not None:
        return entry.workload.workload, entry.workload.instance
    return (entry.started.architecture if entry.started is not None else None,)
