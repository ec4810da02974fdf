"""The beginning of a successor's digest, made of the raw records that count.

Every trial is over by then: the run was interrupted, and what was in progress is lost.
"""

from collections.abc import Collection, Iterator, Mapping

from aiperf.records.bodies import TrialStarted
from aiperf.records.digest.entries import Began, Entry, How, Over
from aiperf.records.entries import TrialLedger
from aiperf.records.ledger import Ledger


def began_of(started: TrialStarted) -> Began:
    """The entry of a trial's start."""
    return Began(**{name: getattr(started, name) for name in Began.__struct_fields__})


def over_of(trial: TrialLedger, how: How, epochs: Collection[int]) -> Over:
    """The entry of a trial's end, with those epochs of it."""
    qualities = trial.epochs.qualities()
    return over(
        trial.trial,
        how,
        trial.failed.body.kind if how == "failed" and trial.failed is not None else "",
        trial.ended.body.predicted_accuracy if how in ("completed", "early_stop") and trial.ended is not None else None,
        {number: qualities[number] for number in epochs if number in qualities},
    )


def over(trial: int, how: How, kind: str, predicted: float | None, qualities: Mapping[int, float | None]) -> Over:
    """An entry of a trial's end, with its qualities by epoch."""
    numbers = tuple(sorted(qualities))
    return Over(
        trial=trial,
        how=how,
        kind=kind[:200],
        predicted=predicted,
        epochs=numbers,
        qualities=tuple(qualities[number] for number in numbers),
    )


def compile_entries(ledger: Ledger) -> Iterator[Entry]:
    """The entries of all trials of an interrupted run, by id."""
    for _, trial in sorted(ledger.trials.items()):
        if trial.started is not None or trial.issued is not None:
            yield from entries_of(trial)


def entries_of(trial: TrialLedger) -> Iterator[Entry]:
    """The entries of a trial of an interrupted run."""
    if trial.started is not None:
        yield began_of(trial.started)
    if trial.failed is not None:
        yield over_of(trial, "failed", trial.epochs)
        return
    if trial.ended is not None:
        yield over_of(trial, trial.ended.body.reason, trial.epochs)
        # A stopped trial keeps its epochs, and is lost as well: nobody trains it any more.
        if trial.ended.body.reason != "stopped":
            return
    yield over_of(trial, "lost", trial.epochs)
