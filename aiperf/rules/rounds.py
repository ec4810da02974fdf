"""The schedule of rounds: epochs and patience, as pure functions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

WARM_UP_ROUNDS = 3
"""Rounds whose trainings are shorter: the search gets their predicted accuracy."""

LEAST_IMPROVEMENT = 0.001
"""Validation accuracy must rise by at least this much to count as an improvement."""


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """The plan of a round: epochs, patience, and whether the search gets a predicted accuracy."""

    epochs: int
    patience: int
    predicts: bool


def plan_round(number: int, max_epochs: int) -> RoundPlan:
    """The plan of a replica's round, counted from 1."""
    return RoundPlan(epochs_of_round(number, max_epochs), patience_of_round(number), number <= WARM_UP_ROUNDS)


def epochs_of_round(number: int, max_epochs: int) -> int:
    """Epochs of a round: 15, 30, 45, then 60 for a maximum of 60; at least one."""
    if number > WARM_UP_ROUNDS:
        return max_epochs
    return max(1, round(max_epochs * number / 4))


def patience_of_round(number: int) -> int:
    """Epochs without an improvement after which a training stops."""
    return min(6 + 2 * (number - 1), 20)


def out_of_patience(accuracies: Sequence[float], patience: int) -> bool:
    """True if no improvement by `LEAST_IMPROVEMENT` came in the last `patience` epochs."""
    return _epochs_without_improvement(accuracies) >= patience


def epoch_out_of_patience(accuracies: Sequence[float], patience: int) -> int | None:
    """The first number of epochs after which `out_of_patience` is true; None if it never is."""
    for number, since in enumerate(_since_improvements(accuracies), start=1):
        if since >= patience:
            return number
    return None


def epochs_left(accuracies: Sequence[float], epochs: int, patience: int) -> int:
    """Epochs until a training of `epochs` ends if none of them improves."""
    return max(0, min(epochs - len(accuracies), patience - _epochs_without_improvement(accuracies)))


def learning_rate(first: float, epochs: float, max_epochs: int) -> float:
    """Learning rate after this many epochs: linear from `first` to 0 (paper, Table 4).

    `epochs` has the fraction of the epoch in progress. The rate depends on the images that were
    trained, not on steps, whose size changes if other ranks resume a training.
    """
    return first * (1 - epochs / max_epochs)


def _epochs_without_improvement(accuracies: Sequence[float]) -> int:
    return [0, *_since_improvements(accuracies)][-1]


def _since_improvements(accuracies: Sequence[float]) -> Iterator[int]:
    """The epochs since the last improvement, after each epoch."""
    best, since = 0.0, 0
    for accuracy in accuracies:
        if accuracy >= best + LEAST_IMPROVEMENT:
            best, since = accuracy, 0
        else:
            since += 1
        yield since
