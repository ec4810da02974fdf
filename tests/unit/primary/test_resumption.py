"""A run is resumed while there is time left of it, by the clock."""

from pathlib import Path

import pytest

from aiperf.errors import UsageError
from aiperf.records.bodies import JobIssued, PhaseBegan, RunEnded, TrialClosed, TrialEnded
from aiperf.records.history_files import HistoryWriter
from aiperf.run_directory.claim import Claim
from aiperf.run_directory.paths import RunPaths
from aiperf.storage.durable import refresh
from primary.resumption import Start, begin_or_resume, prepare_resumption
from tests.support.hand_made import T0_MS, HandMadeRun, ManualClock
from tests.support.trainings.jobs import take


def interrupted(root: Path, duration_s: float = 100) -> HandMadeRun:
    run = HandMadeRun(root, {"run.duration": 100}).at(0).release(duration_s).at(1).start_trial(1)
    run.at(9).primary.append(RunEnded(reason="interrupted", end_ms=T0_MS + 9000))
    return run


def resume(run: HandMadeRun, at_s: float, new_clock: bool = False) -> Start:
    now_ms = T0_MS + round(at_s * 1000)
    with Claim.acquire(run.paths.claims, ManualClock(now_ms)) as claim:
        return prepare_resumption(run.paths, run.config, claim, new_clock, now_ms)


def test_the_rest_of_a_run_is_resumed_until_its_deadline(tmp_path: Path) -> None:
    run = interrupted(tmp_path)
    rest = resume(run, 99.999)
    assert rest.released_ms == T0_MS
    assert rest.rest_s(run.config, ManualClock(T0_MS + 75_000)) == 25
    for late_s in (100, 100_000):
        with pytest.raises(UsageError, match=f"the deadline passed {late_s - 100} s ago"):
            resume(run, late_s)
    assert resume(run, 100_000, new_clock=True).released_ms is None


def test_a_new_clock_that_was_never_released_still_waits_for_its_release(tmp_path: Path) -> None:
    run = interrupted(tmp_path).at(200)
    run.resume(new_clock=True, claim=2)
    start = resume(run, 100_000)
    assert (start.released_ms, start.earlier) == (None, {})
    run.at(210).rejoin(0).release_again(100)
    assert resume(run, 300).released_ms == T0_MS + 210_000
    with pytest.raises(UsageError, match="the deadline passed 10 s ago"):
        resume(run, 320)


def test_a_new_primary_leaves_out_what_a_lost_replica_went_on_to_record(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"run.duration": 1000}).at(0).release(1000).at(1).start_trial(1)
    run.at(20).epoch(1, 1).at(100).lose(0).at(105)
    run.replicas[0].append(run.epoch_of(1, 2, correct=300))
    head = run.replicas[0].head
    assert head is not None
    run.at(160)
    run.replicas[0].append(TrialEnded(trial=1, reason="completed"))
    start = resume(run, 200)
    assert start.resumption is not None
    assert f"replica-0000-1:{head[0]}" in str(start.resumption.until)
    job = take(start.work, 0)
    assert (job.resumes, job.round) == (1, 1), "it was not completed"


def test_a_longer_duration_in_run_json_does_not_move_the_deadline(tmp_path: Path) -> None:
    run = interrupted(tmp_path, duration_s=50)
    with pytest.raises(UsageError, match="the deadline passed 10 s ago"):
        resume(run, 60)


def test_a_primary_under_nni_looks_at_the_clock_too(tmp_path: Path) -> None:
    run = interrupted(tmp_path)
    with Claim.acquire(run.paths.claims, ManualClock()) as claim:
        assert begin_or_resume(run.paths, run.config, claim, T0_MS + 50_000).resumption is not None
        with pytest.raises(UsageError, match="the deadline passed"):
            begin_or_resume(run.paths, run.config, claim, T0_MS + 100_000)


def test_a_run_that_was_never_released_has_no_deadline_yet(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"run.duration": 100})
    start = resume(run, 100_000)
    assert start.released_ms is None
    assert start.rest_s(run.config, ManualClock(T0_MS + 100_000_000)) == 100


def test_the_new_primary_closes_the_trials_that_the_old_one_left_open(tmp_path: Path) -> None:
    run = interrupted(tmp_path).at(10).start_trial(2)
    run.primary.append(TrialClosed(trial=1, how="completed", writer="replica-0000-1", sequence=0, digest="0" * 64))
    run.primary.append(JobIssued(trial=3, replica=0, round=1, seed=1))
    head = run.replicas[0].head
    assert head is not None
    assert resume(run, 20).closings == tuple(
        TrialClosed(trial=trial, how="lost", writer="replica-0000-1", sequence=head[0], digest=head[1])
        for trial in (2, 3)
    )


def test_a_run_is_resumed_by_all_files_even_if_this_node_has_listed_fewer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = interrupted(tmp_path)
    kept, names = list(run.paths.history.iterdir()), RunPaths.history_files
    with HistoryWriter(run.paths, "replica-0009", ManualClock()) as writer:
        writer.append(PhaseBegan(replica=9, trial=9, phase="search"))

    def as_kept(paths: RunPaths, role: str = "*") -> list[Path]:
        return [file for file in names(paths, role) if file in kept]

    def look(folder: Path) -> None:
        refresh(folder)
        kept.extend(folder.iterdir())

    monkeypatch.setattr(RunPaths, "history_files", as_kept)
    monkeypatch.setattr("primary.resumption.refresh", look)
    resumption = resume(run, 20).resumption
    assert resumption is not None
    assert "replica-0009-1" in (resumption.until or "")
    assert not list(run.paths.history.glob(".look*"))
