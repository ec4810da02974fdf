"""The schedule of rounds: epochs and patience (spec, section 2), as pure functions."""

from __future__ import annotations

from collections.abc import Sequence

WARM_UP_QUARTERS = 3
"""Rounds 1 to 3 train one, two and three quarters of the maximum of epochs."""

LEAST_IMPROVEMENT = 0.001
"""Validation accuracy must rise by at least this much to count as an improvement."""


def epochs_of_round(round_number: int, max_epochs: int) -> int:
    """Epochs of a round: 15, 30, 45, then 60 of a maximum of 60; at least one."""
    if round_number > WARM_UP_QUARTERS:
        return max_epochs
    return max(1, round(max_epochs * round_number / 4))


def patience_of_round(round_number: int) -> int:
    """Epochs without an improvement after which a training stops."""
    return min(6 + 2 * (round_number - 1), 20)


def out_of_patience(accuracies: Sequence[float], patience: int) -> bool:
    """Whether the last `patience` epochs brought no improvement of `LEAST_IMPROVEMENT` over the best before them."""
    best, since = 0.0, 0
    for accuracy in accuracies:
        if accuracy >= best + LEAST_IMPROVEMENT:
            best, since = accuracy, 0
        else:
            since += 1
    return since >= patience
