"""Rounds: epochs, patience, predicted accuracies, and the order of trainings."""

from __future__ import annotations

from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiperf.config.sections import SearchSection
from aiperf.rules.rounds import (
    RoundPlan,
    epochs_of_round,
    out_of_patience,
    patience_of_round,
    plan_round,
)
from aiperf.rules.schedule import Assignment, next_assignment
from replica.search.prediction import predicted_accuracy


def test_epochs_follow_the_quarters() -> None:
    assert [epochs_of_round(n, 60) for n in (1, 2, 3, 4, 5)] == [15, 30, 45, 60, 60]
    assert [epochs_of_round(n, 8) for n in (1, 2, 3, 4)] == [2, 4, 6, 8]
    assert [epochs_of_round(n, 1) for n in (1, 2, 3, 4)] == [1, 1, 1, 1]


def test_patience_grows_by_round_up_to_twenty() -> None:
    assert [patience_of_round(n) for n in (1, 2, 7, 8, 9, 100)] == [6, 8, 18, 20, 20, 20]


def test_only_warm_up_rounds_predict() -> None:
    assert [plan_round(n, 60).predicts for n in (1, 2, 3, 4, 9)] == [True, True, True, False, False]
    assert plan_round(2, 60) == RoundPlan(30, 8, True)


def test_patience_ends_a_training_that_does_not_improve() -> None:
    assert not out_of_patience([], 2)
    assert not out_of_patience([0.5, 0.5], 2)
    assert out_of_patience([0.5, 0.5, 0.5], 2)
    assert out_of_patience([0.5, 0.5005, 0.5009], 2), "less than 0.001 is not an improvement"
    assert not out_of_patience([0.5, 0.5, 0.501], 2)
    assert out_of_patience([0.9, 0.8, 0.85], 2), "better than the last epoch is not better than the best"


def curve(a: float, b: float, c: float, epochs: int) -> list[float]:
    return [a * log2(epoch + b) + c for epoch in range(1, epochs + 1)]


@pytest.mark.parametrize("epochs", [4, 15, 30, 45])
@pytest.mark.parametrize("b", [-0.9, -0.5, 0.0, 1.0, 10.0])
def test_the_prediction_is_exact_on_curves_of_its_own_form(b: float, epochs: int) -> None:
    # The curve is read at epoch 90 of 60.
    assert predicted_accuracy(curve(0.06, b, 0.35, epochs), 60) == pytest.approx(0.06 * log2(90 + b) + 0.35, abs=1e-6)


def test_golden_values() -> None:
    # From scipy.optimize.curve_fit with three free parameters: another way to the same least
    # squares.
    measured = [0.31, 0.42, 0.47, 0.53, 0.55, 0.58, 0.60, 0.61, 0.63, 0.63, 0.65, 0.66, 0.66, 0.67, 0.68]
    assert predicted_accuracy(measured, 60) == pytest.approx(0.88104355, abs=1e-7)
    assert predicted_accuracy(measured[:3], 60) == pytest.approx(0.81561204, abs=1e-7)


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
    found = predicted_accuracy(accuracies, 60)
    assert found == (None if expected is None else pytest.approx(expected, abs=1e-6))


def test_residuals_are_taken_off() -> None:
    smooth = curve(0.06, 0.5, 0.3, 15)
    noisy = [value + (0.01 if epoch % 2 else -0.01) for epoch, value in enumerate(smooth)]
    expected, found = predicted_accuracy(smooth, 60), predicted_accuracy(noisy, 60)
    assert expected is not None
    assert found is not None
    assert found < expected - 0.01


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.integers(1, 100))
def test_the_prediction_is_never_below_the_best_measured_nor_above_one(accuracies: list[float], maximum: int) -> None:
    found = predicted_accuracy(accuracies, maximum)
    assert found is not None
    assert max(accuracies) <= found <= 1.0


def walk(outcomes: list[bool], search: SearchSection) -> list[Assignment]:
    assignments = [Assignment()]
    for trial, completed in enumerate(outcomes, start=1):
        assignments.append(next_assignment(assignments[-1], trial, completed, search))
    return assignments


def test_hyperparameters_are_tuned_from_the_fourth_round_on() -> None:
    found = walk([True] * 9, SearchSection())
    assert [(item.round, item.point, item.base) for item in found] == [
        (1, 0, None), (2, 0, None), (3, 0, None), (4, 0, None), (4, 1, 4), (4, 2, 4),
        (5, 0, None), (5, 1, 7), (5, 2, 7), (6, 0, None),
    ]  # fmt: skip


def test_a_failed_training_is_repeated_and_a_failed_point_is_not() -> None:
    found = walk([False, True, False, True], SearchSection(hpo_first_round=1, hpo_points=2))
    assert [(item.round, item.point, item.base) for item in found] == [
        (1, 0, None), (1, 0, None), (1, 1, 2), (1, 2, 2), (2, 0, None),
    ]  # fmt: skip


def test_without_tuning_there_are_no_points() -> None:
    assert [item.point for item in walk([True] * 6, SearchSection(hpo="none"))] == [0] * 7
