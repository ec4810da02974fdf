"""The accuracy that a training of a warm-up round would reach if it continued, extrapolated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2

import numpy as np
from numpy.typing import NDArray

PREDICTED_EPOCH = 1.5
"""The prediction is for this multiple of the maximum of epochs: epoch 90 of 60."""

CAUTION = 2.0
"""Root mean square residuals that are subtracted from a prediction."""

_SHIFTS = (-8.0, 12.0)
"""Range of log2(1 + b): from a steep start at the first epoch to a straight line."""


def predicted_accuracy(accuracies: Mapping[int, float], max_epochs: int) -> float | None:
    """The accuracy that a training would reach at epoch `PREDICTED_EPOCH` x `max_epochs`.

    `accuracies` are by epoch, from 1. The curve a log2(e + b) + c is fitted by least squares, and
    `CAUTION` root mean square residuals are subtracted. The best measured accuracy is the result if
    it is higher, if the value leaves [0, 1], or if there are fewer than three epochs. None without
    any epoch.
    """
    if not accuracies:
        return None
    best = max(accuracies.values())
    if len(accuracies) < 3:
        return best
    epochs = np.array(sorted(accuracies), np.float64)
    curve = _fit(epochs, np.array([accuracies[epoch] for epoch in sorted(accuracies)], np.float64))
    value = curve.at(PREDICTED_EPOCH * max_epochs) - CAUTION * curve.residual
    return max(best, value) if 0.0 <= value <= 1.0 else best


@dataclass(frozen=True, slots=True)
class _Curve:
    a: float
    b: float
    c: float
    residual: float

    def at(self, epoch: float) -> float:
        return self.a * log2(epoch + self.b) + self.c


def _fit(epochs: NDArray[np.float64], accuracies: NDArray[np.float64]) -> _Curve:
    """The least-squares curve.

    It is linear in a and c; only b is searched for, so there is no start value to guess.
    """

    # Its import takes a second, and most runs that are read have too few epochs to be fitted.
    from scipy.optimize import minimize_scalar  # noqa: PLC0415

    def linear(shift: float) -> _Curve:
        b = 2.0**shift - 1.0
        columns = np.stack([np.log2(epochs + b), np.ones_like(epochs)], axis=1)
        (a, c), *_ = np.linalg.lstsq(columns, accuracies, rcond=None)
        residual = float(np.sqrt(np.mean((columns @ np.array([a, c]) - accuracies) ** 2)))
        return _Curve(float(a), b, float(c), residual)

    grid = _grid()
    best = int(np.argmin(_residuals(epochs, accuracies, grid)))
    bounds = (grid[max(0, best - 1)], grid[min(len(grid) - 1, best + 1)])
    found = minimize_scalar(
        lambda shift: linear(shift).residual, bounds=bounds, method="bounded", options={"xatol": 1e-10}
    )
    return linear(float(found.x))


def _grid() -> NDArray[np.float64]:
    """The shifts around the best of which is the curve."""
    return np.linspace(*_SHIFTS, 41)


def nearly_predicted(trainings: Sequence[Mapping[int, float]], max_epochs: int) -> list[float]:
    """Predictions of many trainings, each within `NEARLY` of `predicted_accuracy`.

    NaN if that cannot be said, as it depends on the last digits of a fit or there is none. Fits of
    trainings with the same epochs are found together, hundreds of times faster than one by one.
    """
    found = np.full(len(trainings), np.nan)
    places: dict[tuple[int, ...], list[int]] = {}
    for place, training in enumerate(trainings):
        if len(training) >= 3:
            places.setdefault(tuple(sorted(training)), []).append(place)
    for epochs, own in places.items():
        rows = np.array([[trainings[place][epoch] for epoch in epochs] for place in own], np.float64)
        with np.errstate(all="ignore"):  # of numbers that no curve is through, nothing is said
            found[own] = _all_near(np.array(epochs, np.float64), rows, PREDICTED_EPOCH * max_epochs)
    return [float(value) for value in found]


NEARLY = 1e-5
"""Largest difference that the fewer steps of a golden section make to a prediction."""

_STEPS = 30
"""Number of steps of a golden section: each shortens the bracket to 0.62."""


def _all_near(epochs: NDArray[np.float64], accuracies: NDArray[np.float64], at_epoch: float) -> NDArray[np.float64]:
    """The predictions of trainings (a row each) of the same epochs; NaN if one is in doubt."""
    grid = _grid()
    best = np.stack([_curves(epochs, accuracies, np.full(len(accuracies), shift))[2] for shift in grid]).argmin(axis=0)
    low, high = grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, len(grid) - 1)]
    section = (5**0.5 - 1) / 2
    for _ in range(_STEPS):
        # Both points anew in each step: trainings of one array keep different sides of their
        # brackets.
        left, right = high - section * (high - low), low + section * (high - low)
        is_left = _curves(epochs, accuracies, left)[2] < _curves(epochs, accuracies, right)[2]
        low, high = np.where(is_left, low, left), np.where(is_left, right, high)
    slopes, heights, residuals = _curves(epochs, accuracies, shifts := (low + high) / 2)
    values = slopes * np.log2(at_epoch + 2.0**shifts - 1.0) + heights - CAUTION * np.sqrt(residuals)
    highest = accuracies.max(axis=1)
    near = np.where((values >= 0) & (values <= 1), np.maximum(highest, values), highest)
    # From one side of these bounds to the other, the prediction jumps.
    in_doubt = ~np.isfinite(values) | (np.abs(values) < NEARLY) | (np.abs(values - 1) < NEARLY)
    found: NDArray[np.float64] = np.where(in_doubt, np.nan, near)
    return found


def _curves(
    epochs: NDArray[np.float64], accuracies: NDArray[np.float64], shifts: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Slope, height and mean square residual of the curve of each training's shift."""
    columns = np.log2(epochs + (2.0 ** shifts[:, None] - 1.0))
    means, middles = columns.mean(axis=1), accuracies.mean(axis=1)
    columns, wanted = columns - means[:, None], accuracies - middles[:, None]
    slopes = (columns * wanted).sum(axis=1) / (columns * columns).sum(axis=1)
    return slopes, middles - slopes * means, ((slopes[:, None] * columns - wanted) ** 2).mean(axis=1)


def _residuals(
    epochs: NDArray[np.float64], accuracies: NDArray[np.float64], shifts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Mean square residuals of the curves of these shifts, all at once: close enough to choose."""
    columns = np.log2(epochs + (2.0 ** shifts[:, None] - 1.0))
    columns -= columns.mean(axis=1, keepdims=True)
    wanted = accuracies - accuracies.mean()
    slopes = columns @ wanted / (columns * columns).sum(axis=1)
    found: NDArray[np.float64] = ((slopes[:, None] * columns - wanted) ** 2).mean(axis=1)
    return found
