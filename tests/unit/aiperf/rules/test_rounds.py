"""Rounds: epochs and patience."""

from aiperf.rules.rounds import (
    RoundPlan,
    epochs_of_round,
    out_of_patience,
    patience_of_round,
    plan_round,
)


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
