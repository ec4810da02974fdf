"""The score: work that counts, error, and the timeline, worked out by hand and by definition."""

from dataclasses import replace
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiperf.facts import EpochFacts, ProgressFacts, Stamped
from aiperf.network.operations import Operations
from aiperf.rules.score import error_of, operations_per_second, regulated
from aiperf.rules.work import Course, TimelinePoint
from tests.support.score import TrialWork, best_error, columns_of, work_done


def epoch_at(time_ms: int, epoch: int, correct: int) -> Stamped[EpochFacts]:
    """100 images trained and 10 evaluated."""
    return Stamped(
        time_ms,
        EpochFacts(
            epoch=epoch,
            images_trained=100,
            images_evaluated=10,
            correct=correct,
            loss=1.0,
            validation_loss=1.0,
            learning_rate=0.1,
        ),
    )


def progress_at(time_ms: int, epoch: int, trained: int, evaluated: int = 0) -> Stamped[ProgressFacts]:
    return Stamped(time_ms, ProgressFacts(epoch=epoch, images_trained=trained, images_evaluated=evaluated))


COST = Operations(10, 20)
EPOCHS = (epoch_at(1000, 1, 5), epoch_at(2000, 2, 8))
EPOCH_OPERATIONS = 100 * 30 + 10 * 10


def timeline(trials: list[TrialWork], start_ms: int, end_ms: int) -> tuple[TimelinePoint, ...]:
    return Course(columns_of(trials)).timeline(start_ms, end_ms)


def done(trials: list[TrialWork], at_ms: int) -> int:
    return int(columns_of(trials).operations_done(at_ms).sum())


def test_completed_epochs_count_whatever_becomes_of_the_trial() -> None:
    assert done([TrialWork(COST, EPOCHS)], 2000) == 2 * EPOCH_OPERATIONS
    assert done([TrialWork(COST, EPOCHS, died_ms=2001)], 5000) == 2 * EPOCH_OPERATIONS
    assert done([TrialWork(COST, EPOCHS)], 1999) == EPOCH_OPERATIONS


def test_an_unfinished_epoch_counts_up_to_its_last_report_while_its_trial_is_alive() -> None:
    reports = (progress_at(2100, 3, 40), progress_at(2200, 3, 100, 5))
    alive = TrialWork(COST, EPOCHS, reports)
    assert done([alive], 2150) == 2 * EPOCH_OPERATIONS + 40 * 30
    assert done([alive], 9999) == 2 * EPOCH_OPERATIONS + 100 * 30 + 5 * 10
    dead = TrialWork(COST, EPOCHS, reports, died_ms=2300)
    assert done([dead], 2299) == done([alive], 2299)
    assert done([dead], 2300) == 2 * EPOCH_OPERATIONS


def test_reports_of_a_completed_epoch_are_not_counted_twice() -> None:
    trial = TrialWork(COST, EPOCHS, (progress_at(500, 1, 60), progress_at(1500, 2, 60)))
    assert done([trial], 2000) == 2 * EPOCH_OPERATIONS


def test_error_and_regulated_score() -> None:
    assert error_of(270, 360) == 0.25
    assert error_of(360, 360) == 1 / 720
    assert columns_of([TrialWork(COST, EPOCHS)]).best_error(1500) == 0.5
    assert best_error([], 1500) == 1.0
    assert regulated(1e6, 0.25) == -log(0.25) * 1e6
    assert regulated(1e6, 1.0) == 0.0


def test_ops_is_over_wall_time() -> None:
    assert operations_per_second(3_000_000, 1500) == 2_000_000.0
    assert operations_per_second(5, 0) == 0.0
    trial = TrialWork(COST, EPOCHS)
    once, twice = timeline([trial], 0, 4000)[-1], timeline([trial], 0, 8000)[-1]
    assert once.ops == 2 * twice.ops
    assert once.error == twice.error


def test_the_grid_is_a_tenth_of_an_hour_and_the_end() -> None:
    assert [point.t_ms for point in timeline([], 5, 5 + 800_000)] == [360_000, 720_000, 800_000]
    assert [point.t_ms for point in timeline([], 0, 720_000)] == [360_000, 720_000]
    assert timeline([], 7, 7) == ()


@st.composite
def trials(draw: st.DrawFn) -> TrialWork:
    times = sorted(draw(st.lists(st.integers(0, 1_500_000), min_size=1, max_size=12)))
    epochs: list[Stamped[EpochFacts]] = []
    progress: list[Stamped[ProgressFacts]] = []
    for time_ms in times:
        epoch = len(epochs) + 1
        if draw(st.booleans()):
            epochs.append(epoch_at(time_ms, epoch, draw(st.integers(0, 10))))
        else:
            done = [p.body.images_trained for p in progress if p.body.epoch == epoch]
            progress.append(progress_at(time_ms, epoch, min(99, max(done, default=0) + 7)))
    died = draw(st.none() | st.just(times[-1] + draw(st.integers(0, 1000))))
    cost = Operations(draw(st.integers(1, 9)), draw(st.integers(1, 9)))
    return TrialWork(cost, tuple(epochs), tuple(progress), died)


@given(st.lists(trials(), max_size=4), st.integers(0, 1_600_000))
def test_columns_of_work_say_the_same_as_its_trials(run: list[TrialWork], at_ms: int) -> None:
    work = columns_of(run)
    found = zip(*(column.tolist() for column in work.images_done(at_ms)), strict=True)
    assert list(found) == [trial.images_done(at_ms) for trial in run]
    alive = [replace(trial, died_ms=None) for trial in run]
    assert sum(work.operations_done(at_ms, alive=True).tolist()) == work_done(alive, at_ms)
    assert work.best_error(at_ms) == best_error(run, at_ms)
    times, errors = work.errors()
    found = zip(times.tolist(), errors.tolist(), strict=True)
    assert list(found) == [item for trial in run for item in trial.errors()]


def test_sums_beyond_64_bits_are_exact() -> None:
    many = 10**15
    epochs = [
        Stamped(
            at,
            EpochFacts(
                epoch=at,
                images_trained=many - 1,
                images_evaluated=many,
                correct=1,
                loss=1.0,
                validation_loss=1.0,
                learning_rate=0.1,
            ),
        )
        for at in range(1, 12)
    ]
    run = [TrialWork(Operations(10**12 + 7, 10**12), tuple(epochs[:count])) for count in (1, 11, 5)]
    assert columns_of(run).operations_done(99).tolist() == [work_done([trial], 99) for trial in run]
    assert timeline(run, 0, 20)[-1].ops == operations_per_second(work_done(run, 20), 20)


@given(st.lists(trials(), max_size=4))
def test_every_point_of_the_timeline_is_the_score_of_a_run_that_ended_there(run: list[TrialWork]) -> None:
    for point in timeline(run, 0, 1_600_000):
        assert point.ops == operations_per_second(work_done(run, point.t_ms), point.t_ms)
        assert point.error == best_error(run, point.t_ms)
        assert point.regulated_ops == pytest.approx(regulated(point.ops, point.error), abs=0)
