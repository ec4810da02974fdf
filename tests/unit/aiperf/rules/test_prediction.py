"""Predicted accuracies of warm-up rounds."""

from collections.abc import Sequence
from math import isnan, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiperf.rules.prediction import NEARLY, nearly_predicted, predicted_accuracy


def predicted(accuracies: Sequence[float], maximum: int) -> float | None:
    """The prediction from the accuracies of epochs 1, 2, ..."""
    return predicted_accuracy(dict(enumerate(accuracies, start=1)), maximum)


def curve(a: float, b: float, c: float, epochs: int) -> list[float]:
    return [a * log2(epoch + b) + c for epoch in range(1, epochs + 1)]


@pytest.mark.parametrize("epochs", [4, 15, 30, 45])
@pytest.mark.parametrize("b", [-0.9, -0.5, 0.0, 1.0, 10.0])
def test_the_prediction_is_exact_on_curves_of_its_own_form(b: float, epochs: int) -> None:
    # The curve is read at epoch 90 of 60.
    assert predicted(curve(0.06, b, 0.35, epochs), 60) == pytest.approx(0.06 * log2(90 + b) + 0.35, abs=1e-6)


def test_epochs_that_are_missing_leave_the_others_in_their_places() -> None:
    accuracies = dict(enumerate(curve(0.06, 0.5, 0.35, 30), start=1))
    known = {epoch: accuracy for epoch, accuracy in accuracies.items() if epoch not in (4, 5, 9)}
    assert predicted_accuracy(known, 60) == pytest.approx(0.06 * log2(90.5) + 0.35, abs=1e-6)


def test_golden_values() -> None:
    # From scipy.optimize.curve_fit with three free parameters: another way to the same least
    # squares.
    measured = [0.31, 0.42, 0.47, 0.53, 0.55, 0.58, 0.60, 0.61, 0.63, 0.63, 0.65, 0.66, 0.66, 0.67, 0.68]
    assert predicted(measured, 60) == pytest.approx(0.88104355, abs=1e-7)
    assert predicted(measured[:3], 60) == pytest.approx(0.81561204, abs=1e-7)


@pytest.mark.parametrize(
    ("accuracies", "expected"),
    [
        ([], None),
        ([0.2], 0.2),
        ([0.1, 0.2], 0.2),
        ([0.5] * 15, 0.5),
        ([0.9, 0.8, 0.7], 0.9),
        ([0.1, 0.4, 0.7], 0.7),
        ([0.0] * 5, 0.0),
        ([1.0] * 5, 1.0),
    ],
)
def test_short_constant_falling_and_steep_curves_give_the_best_measured(
    accuracies: list[float], expected: float | None
) -> None:
    found = predicted(accuracies, 60)
    assert found == (None if expected is None else pytest.approx(expected, abs=1e-6))


def test_residuals_are_taken_off() -> None:
    smooth = curve(0.06, 0.5, 0.3, 15)
    noisy = [value + (0.01 if epoch % 2 else -0.01) for epoch, value in enumerate(smooth)]
    expected, found = predicted(smooth, 60), predicted(noisy, 60)
    assert expected is not None
    assert found is not None
    assert found < expected - 0.01


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.integers(1, 100))
def test_the_prediction_is_never_below_the_best_measured_nor_above_one(accuracies: list[float], maximum: int) -> None:
    found = predicted(accuracies, maximum)
    assert found is not None
    assert max(accuracies) <= found <= 1.0


@given(
    st.lists(st.lists(st.floats(0, 1), min_size=0, max_size=20), max_size=6),
    st.integers(3, 90),
    st.sampled_from([0.0, 0.02, 0.3]),
)
def test_predictions_of_many_trainings_are_near_those_of_each(
    noises: list[list[float]], maximum: int, amount: float
) -> None:
    trainings = [
        {epoch: 0.8 * (1 - 0.7**epoch) * (1 - amount * noise) for epoch, noise in enumerate(own, start=1)}
        for own in noises
    ]
    for training, found in zip(trainings, nearly_predicted(trainings, maximum), strict=True):
        expected = predicted_accuracy(training, maximum)
        assert isnan(found) or (expected is not None and abs(found - expected) < NEARLY)
        assert len(training) >= 3 or isnan(found)
