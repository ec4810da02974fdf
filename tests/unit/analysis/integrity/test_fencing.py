"""A primary that goes on beside its successor costs its own work, and nothing of the run."""

import random
from copy import copy
from pathlib import Path

import pytest
from msgspec.structs import replace

from aiperf.records.bodies import JobIssued, RunEnded, RunReleased, TrialEnded
from aiperf.records.history_files import HistoryReader
from aiperf.records.ledger import Ledger
from aiperf.records.reading import read_ledger, states_of
from analysis.reading.run_data import RunData, read_run
from analysis.report.build import build_report
from tests.support.hand_made import T0_MS, HandMadeRun


def as_it_is(run: HandMadeRun) -> HandMadeRun:
    """The primary and the replicas of now, which go on beside a successor."""
    twin = copy(run)
    twin.replicas, twin._jobs, twin._open = dict(run.replicas), dict(run._jobs), dict(run._open)
    twin._next, twin.clock = dict(run._next), copy(run.clock)
    for writer in (twin.primary, *twin.replicas.values()):
        writer.clock = twin.clock
    return twin


def begun(root: Path) -> HandMadeRun:
    run = HandMadeRun(root, {"training.trainer": "simulated"}).at(0).release(600, replicas=2)
    run.at(1).start_trial(1).at(2).start_trial(2, replica=1)
    return run.at(20).epoch(1, 1, correct=200).at(21).epoch(2, 1, correct=210, replica=1)


def resumed(run: HandMadeRun, claim: int = 2) -> HandMadeRun:
    return run.at(30).resume(claim=claim).at(31).rejoin(0).rejoin(1)


def rest(run: HandMadeRun) -> HandMadeRun:
    """The work of the successor, which resumes trial 1 as trial 3."""
    run.at(40).start_trial(3, resumes=1).at(60).epoch(3, 2, correct=300)
    return run.end(600)


def loser_works(loser: HandMadeRun, until_s: int = 75) -> None:
    """The old primary hears of another epoch, and issues jobs of the same numbers."""
    loser.at(35).epoch(1, 2, correct=359).fail_trial(1)
    loser.at(50).start_trial(3, resumes=None).at(until_s).epoch(3, 1, correct=360)
    loser.at(until_s + 1).close_all()


def read(run: HandMadeRun) -> RunData:
    return read_run(run.paths)


def test_the_work_of_the_loser_does_not_count_and_nothing_is_damaged(tmp_path: Path) -> None:
    alone = rest(resumed(begun(tmp_path / "alone")))
    run = begun(tmp_path / "both")
    loser = as_it_is(run)
    resumed(run)
    loser_works(loser)
    rest(run)
    found, expected = read(run), read(alone)
    assert found.damages == expected.damages == ()
    report, wanted = build_report(found), build_report(expected)
    assert (report.score_ops, report.error, report.operations_total) == (
        wanted.score_ops,
        wanted.error,
        wanted.operations_total,
    )
    assert report.status == wanted.status != "FAILED"
    assert found.ledger.trials == expected.ledger.trials
    assert expected.notices == ()
    assert [notice.partition(":")[0] for notice in found.notices] == [
        "primary-1 was superseded by another primary and went on",
        "2 epoch(s) of superseded primaries do not count",
    ]


def test_without_a_fence_the_same_records_are_a_conflict(tmp_path: Path) -> None:
    run = begun(tmp_path)
    loser = as_it_is(run)
    run.at(30).resume().at(31).rejoin(0).rejoin(1)
    loser_works(loser)
    rest(run)
    assert read(run).damages


def test_a_replica_that_the_loser_starts_later_is_not_foreign_and_does_not_count(tmp_path: Path) -> None:
    run = begun(tmp_path)
    loser = as_it_is(run)
    resumed(run)
    loser.at(33).lose(1).at(34).rejoin(1)
    assert loser.replicas[1].name == "replica-0001-3"
    loser.at(40).start_trial(3, replica=1, resumes=2).at(50).epoch(3, 2, replica=1)
    rest(run)
    assert read(run).damages == ()
    assert len(read(run).ledger.trials[3].epochs) == 1


def test_the_last_claim_decides_among_three(tmp_path: Path) -> None:
    run = begun(tmp_path)
    first = as_it_is(run)
    resumed(run)
    second = as_it_is(run)
    run.at(30.5).resume(claim=3).at(31).rejoin(0).rejoin(1)
    loser_works(first)
    second.at(45).start_trial(3, resumes=1).at(65).epoch(3, 2, correct=360)
    rest(run)
    data = read(run)
    assert data.damages == ()
    assert data.ledger.trials[3].epochs[2].body.correct == 300
    assert data.ledger.fences.claim == 3


def test_the_fold_is_the_same_in_any_order_if_the_fence_is_known(tmp_path: Path) -> None:
    run = begun(tmp_path)
    loser = as_it_is(run)
    resumed(run)
    loser_works(loser)
    rest(run)
    records = HistoryReader(run.paths).read_new().records
    expected = Ledger()
    expected.add(records)
    for seed in range(10):
        ledger = Ledger()
        ledger.add(random.Random(seed).sample(records, len(records)))
        assert ledger.trials == expected.trials
        assert ledger.fences.last_trial == 3
    by_file = Ledger()
    for batch in HistoryReader(run.paths).read_files():
        by_file.add(batch.records)
    assert by_file.trials == expected.trials


def test_the_end_that_the_loser_records_is_not_the_runs(tmp_path: Path) -> None:
    run = begun(tmp_path)
    loser = as_it_is(run)
    resumed(run)
    loser.at(36).primary.append(RunEnded(reason="interrupted", end_ms=T0_MS + 36_000))
    assert read(rest(run)).ended == "deadline"


@pytest.mark.parametrize("minutes", [4, 9])
def test_a_second_try_at_a_part_of_the_run_is_damage(tmp_path: Path, minutes: int) -> None:
    """A primary looks at its claim every 15 s: one that works on for long is no accident."""
    run = begun(tmp_path)
    loser = as_it_is(run)
    resumed(run)
    for minute in range(minutes):
        loser.at(60 * minute + 59).epoch(1, 2 + minute)
    loser.close_all()
    found = [damage for damage in read(rest(run)).damages if "superseded" in damage.found]
    assert bool(found) == (minutes > 5)


def test_a_fence_does_not_make_the_clock_start_anew(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"training.trainer": "simulated"}).at(0)
    run._configure(run_duration=600, run_replicas=1)
    run.tell(RunEnded(reason="interrupted", end_ms=T0_MS))
    loser = as_it_is(run)
    run.at(1).resume(claim=2)
    loser.at(2).tell(RunReleased(duration_ms=600_000, ready=(0,)))
    run.at(100).release(600).at(101).start_trial(1).at(120).epoch(1, 1).end(700)
    assert "a superseded primary releases the replicas" in [damage.found for damage in read(run).damages]


def test_a_fence_behind_records_that_are_not_there_is_damage(tmp_path: Path) -> None:
    """Records that the successor had read were cut off since."""
    run = rest(resumed(begun(tmp_path)))
    file = run.paths.history_file("primary-1")
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-1]))
    assert f"the run is resumed after record {len(lines) - 1} of primary-1" in [d.found for d in read(run).damages]


def test_claims_that_fall_are_damage(tmp_path: Path) -> None:
    run = begun(tmp_path)
    run._jobs = {trial: replace(job, claim=4) for trial, job in run._jobs.items()}
    run.tell(JobIssued(trial=7, replica=1, round=1, seed=1, claim=4))
    found = [damage.found for damage in read(rest(resumed(run, claim=3))).damages]
    assert "claim 3 follows claim 4" in found


def test_a_replica_that_is_cut_off_and_works_on_costs_nobody_anything(tmp_path: Path) -> None:
    """Its node reaches the storage and not the primary, which has given its job to another one."""
    reports = []
    for late in ((), (160, 700)):
        run = HandMadeRun(tmp_path / str(len(late))).at(0).release(7200, replicas=2)
        run.at(1).start_trial(1).at(20).epoch(1, 1, correct=200).at(100).lose(0)
        lost = run.replicas[0]
        run.at(101).rejoin(0).at(102).start_trial(2, resumes=1).at(130).epoch(2, 2, correct=210)
        for number, at_s in enumerate((105, *late)):
            run.at(at_s)
            lost.append(run._evident(run.epoch_of(1, 2 + number, correct=350)))
        lost.append(TrialEnded(trial=1, reason="stopped"))
        data = read(run.end(7200))
        assert data.damages == ()
        reports.append((data, build_report(data)))
    (before, alone), (after, both) = reports
    assert before.notices == ()
    assert after.notices == ("2 epoch(s) that replicas completed after they were lost do not count",)
    assert (alone.operations_total, alone.error, alone.score_ops) == (both.operations_total, both.error, both.score_ops)


def test_what_a_successor_has_read_of_a_lost_replica_counts(tmp_path: Path) -> None:
    """It may have resumed the run by that, as primaries of earlier versions have."""
    run = HandMadeRun(tmp_path).at(0).release(7200, replicas=2)
    run.at(1).start_trial(1).at(100).lose(0).at(160)
    run.replicas[0].append(run._evident(run.epoch_of(1, 1, correct=210)))
    run.at(200).resume(claim=2).at(201).rejoin(0).at(202).start_trial(2, resumes=1).at(230).epoch(2, 2, correct=220)
    data = read(run.end(7200))
    assert (data.damages, data.notices) == ((), ())
    assert len(data.ledger.trials[1].epochs) == 1


def test_states_after_the_loss_of_a_replica_are_not_resumed(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(600, replicas=2).at(1).start_trial(1)
    run.at(20).epoch(1, 1, state="a" * 64).at(100).lose(0)
    for at_s, state in ((105, "b" * 64), (160, "c" * 64)):
        run.at(at_s).replicas[0].append(run.epoch_of(1, 2, correct=210, state=state))
    assert states_of(run.paths, {1: 0}) == ("a" * 64, "b" * 64)
    assert states_of(run.paths, {2: 0, 1: 1}) == ()
    assert [*read_ledger(run.paths).trials[1].epochs] == [1, 2]
