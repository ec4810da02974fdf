"""Intervals, growth and stationarity against numbers worked out by hand."""

from math import log, sqrt
from pathlib import Path

import pytest

from aiperf.network.operations import count as count_operations
from aiperf.records.bodies import PhaseBegan, TrialEnded, TrialStarted
from aiperf.run_directory.architectures import ArchitectureStore
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.estimates import IntervalPart, StatisticsPart
from analysis.report.statistics import jackknife_error, regulated_interval, wilson
from search_space.resnet import resnet
from tests.support.hand_made import HandMadeRun

COST = count_operations(resnet(50, 32, 10)).operations
EPOCH = 1437 * COST.total + 360 * COST.forward


LONG = {"training.max_epochs": 40}
"""Trials of 10 epochs from the first round on."""


def statistics(run: HandMadeRun) -> StatisticsPart:
    found = build_report(read_run(run.paths)).statistics
    assert found is not None
    return found


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    values = [2.0, 4.0, 9.0]
    left_out = [(sum(values) - value) / 2 for value in values]
    assert jackknife_error(left_out) == pytest.approx(sqrt(13 / 3)), "s squared = (9 + 1 + 16) / 2 = 13"
    assert jackknife_error([1.0]) is None


def test_the_interval_of_the_score_comes_from_the_replicas(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, LONG).at(0).release(100, replicas=3).at(1)
    for replica in range(3):
        run.start_trial(replica + 1, replica=replica)
    for epoch in (1, 2, 3):
        for replica in range(epoch - 1, 3):
            run.at(10 * epoch).epoch(replica + 1, epoch, replica=replica)
    found = statistics(run.end(100))
    assert (found.samples, found.sampled) == (3, "replicas")
    assert found.score_ops is not None
    # The standard deviation of 1, 2 and 3 epochs is 1; Student's t with 2 degrees of freedom 4.3.
    half = 4.302653 * sqrt(3) * EPOCH / 100
    assert found.score_ops.value == 6 * EPOCH / 100
    assert found.score_ops.high == pytest.approx(6 * EPOCH / 100 + half)
    assert found.score_ops.low == 0.0, "not below 0"


def test_one_replica_has_blocks_of_time(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, LONG).at(0).release(3600).at(1).start_trial(1)
    for epoch in range(1, 11):
        run.at(360 * epoch - 10 * (epoch > 5)).epoch(1, epoch, correct=290 + epoch)
    found = statistics(run.end(3600))
    assert (found.samples, found.sampled) == (10, "blocks of 0.1 hour")
    assert found.score_ops is not None
    assert found.score_ops.value == 10 * EPOCH / 3600
    half = (found.score_ops.high or 0.0) - found.score_ops.value
    assert half == pytest.approx(0, abs=1e-6 * found.score_ops.value), "an epoch in each block: no deviation"
    assert found.second_half == 1.0


def test_the_interval_of_the_error_is_wilsons(tmp_path: Path) -> None:
    # Newcombe 1998, Statistics in Medicine 17, table I: 81 of 263 and 15 of 148.
    for wrong, count, expected in ((81, 263, (0.2553, 0.3662)), (15, 148, (0.0624, 0.1605)), (0, 20, (0.0, 0.1611))):
        assert [*wilson(wrong, count)] == pytest.approx(expected, abs=5e-5)
    run = HandMadeRun(tmp_path).at(0).release(100).at(1).start_trial(1).at(30).epoch(1, 1, correct=279).end(100)
    found = statistics(run)
    assert found.error is not None
    assert (found.error.low, found.error.high) == wilson(81, 360)


def test_the_regulated_interval_has_both_factors() -> None:
    score = IntervalPart(value=100.0, low=90.0, high=110.0)
    error = IntervalPart(value=0.25, low=0.2, high=0.3)
    found = regulated_interval(score, error)
    assert found is not None and found.low is not None and found.high is not None
    gain = log(4)
    assert found.value == pytest.approx(100 * gain)
    assert found.low == pytest.approx(100 * gain - sqrt((10 * gain) ** 2 + (100 * log(0.3 / 0.25)) ** 2))
    assert found.high == pytest.approx(100 * gain + sqrt((10 * gain) ** 2 + (100 * log(0.25 / 0.2)) ** 2))
    assert regulated_interval(None, error) is None


def test_growth_and_speed_on_the_initial_architecture(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100).at(2).start_trial(1)
    run.at(10).replicas[0].append(PhaseBegan(replica=0, trial=1, phase="train"))
    run.at(30).replicas[0].append(PhaseBegan(replica=0, trial=1, phase="evaluate"))
    run.at(35).epoch(1, 1).end_trial(1)
    run.replicas[0].append(PhaseBegan(replica=0, trial=2, phase="search"))
    grown = resnet(101, 32, 10)
    ArchitectureStore(run.paths).save(grown)
    run.at(40).replicas[0].append(
        TrialStarted(
            trial=2,
            replica=0,
            round=2,
            architecture=grown.hash,
            parent=run.architecture.hash,
            hyperparameters={},
            epochs=1,
        )
    )
    found = statistics(run.at(90).epoch(2, 1).end(100))
    assert found.initial_ops == EPOCH / 25, "from 10 s to 35 s"
    cost = count_operations(grown).operations
    other = 1437 * cost.total + 360 * cost.forward
    ratio = cost.total / COST.total
    assert found.mean_growth == pytest.approx((EPOCH + other * ratio) / (EPOCH + other))
    assert found.second_half == pytest.approx(other / EPOCH), "one epoch before 50 s, one after"


def test_points_that_were_drawn_at_random_are_counted(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100)
    for trial in range(1, 9):
        run.at(10 * trial).replicas[0].append(
            TrialStarted(
                trial=trial,
                replica=0,
                round=4,
                point=trial,
                architecture=run.architecture.hash,
                parent=None,
                hyperparameters={},
                epochs=1,
            )
        )
        run.at(10 * trial + 5).replicas[0].append(TrialEnded(trial=trial, reason="completed"))
    found = statistics(run.end(100))
    assert (found.points, found.random_points) == (8, 5)


def test_work_that_a_loss_takes_back_is_in_neither_half(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100, replicas=2).at(1).start_trial(1).start_trial(2, replica=1)
    run.at(20).epoch(1, 1).at(21).epoch(2, 1, replica=1).at(44).progress(1, 2, 700).at(60).lose(0)
    alone = statistics(run.end(100))
    assert alone.second_half == 0.0, "the progress of the lost trial is no work of the first half"
