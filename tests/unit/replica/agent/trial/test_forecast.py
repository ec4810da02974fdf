"""The forecast of the end of a training."""

import pytest

from aiperf.rules.rounds import epochs_left
from replica.agent.trial.automl import Forecast


def test_the_end_is_forecast_from_the_pace_and_the_patience() -> None:
    forecast = Forecast(epochs=10, patience=6)
    assert forecast.seconds_left(50.0) is None
    forecast.began(100.0)
    forecast.began(999.0)
    assert forecast.seconds_left(101.0) is None
    forecast.reached(105.0, [], 0.5)
    # Ten seconds an epoch; after six epochs without any improvement it ends: 5.5 epochs to go, 2 s
    # later.
    assert forecast.seconds_left(107.0) == pytest.approx(53.0)
    forecast.reached(140.0, [0.1, 0.5, 0.4, 0.45], 0.0)
    # Two epochs without an improvement: the earliest end is at epoch 8.
    assert forecast.seconds_left(140.0) == pytest.approx(40.0)
    assert forecast.seconds_left(1000.0) == 0.0


def test_epochs_before_a_resumption_add_to_the_epochs_and_not_to_the_pace() -> None:
    forecast = Forecast(epochs=10, patience=6)
    forecast.began(100.0)
    forecast.reached(100.0, [0.1, 0.5, 0.4], 0.0, 3)
    assert forecast.seconds_left(100.0) is None
    forecast.reached(105.0, [0.1, 0.5, 0.4], 0.5, 3)
    # Ten seconds an epoch; the best was epoch 2, so the earliest end is at epoch 8.
    assert forecast.seconds_left(105.0) == pytest.approx(45.0)


def test_epochs_left_is_what_patience_or_the_round_allows() -> None:
    assert epochs_left([], 4, 6) == 4
    assert epochs_left([0.1, 0.2, 0.2, 0.2], 60, 6) == 4
    assert epochs_left([0.1, 0.2, 0.3], 4, 6) == 1
    assert epochs_left([0.2, 0.1, 0.1], 60, 2) == 0
