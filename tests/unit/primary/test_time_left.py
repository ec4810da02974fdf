"""The end of a job, by stand-ins for the commands of every scheduler."""

from datetime import datetime
from pathlib import Path

import pytest

from aiperf.clock import SystemClock
from aiperf.config.settings import load_config
from aiperf.errors import EnvironmentNotReadyError
from primary import preflight
from primary.allocations import ALLOCATIONS
from primary.allocations.time_left import QUERIES, early_end, seconds_of, time_left_s
from primary.doctor.checks import CHECKS
from primary.doctor.contract import Evidence
from tests.support.hosts.allocations import Environment, answering_job, enter

NOW_MS = int(datetime(2026, 11, 27, 10, 55, 43).astimezone().timestamp() * 1000)


def grid_engine_jobs(**requested: str) -> str:
    """What `qstat -xml -r` of Grid Engine 8.1.9 prints: job 76, task 3 of the array 77, job 77."""

    def job(number: int, task: str, start: str, asked: dict[str, str]) -> str:
        requests = "".join(
            f'<hard_request name="{name}" resource_contribution="0.000000">{value}</hard_request>'
            for name, value in asked.items()
        )
        return (
            f'<job_list state="running"><JB_job_number>{number}</JB_job_number><state>r</state>'
            f"<JAT_start_time>2026-11-27T{start}</JAT_start_time><slots>2</slots>{task}{requests}</job_list>"
        )

    jobs = (
        job(76, "", "09:00:00", {"h_rt": "60"}),
        job(77, "<tasks>3</tasks>", "10:00:00", {"h_rt": "7200"}),
        job(77, "", "09:57:43", requested),
    )
    return f"<?xml version='1.0'?>\n<job_info>\n<queue_info>{''.join(jobs)}</queue_info>\n<job_info/></job_info>\n"


ANSWERS: dict[str, tuple[str, str, float, str]] = {
    "SLURM": ("squeue", "2:00", 120, "UNLIMITED"),
    "PBS": (
        "qstat",
        "Job Id: 1.head\n    resources_used.walltime = 00:58:00\n    Resource_List.walltime = 01:00:00\n",
        120,
        "Job Id: 1.head\n    Resource_List.ncpus = 8\n",
    ),
    "LSF": ("bjobs", "0:2 L\n", 120, "-\n"),
    "Grid Engine": ("qstat", grid_engine_jobs(h_rt="3600"), 120, grid_engine_jobs(exclusive="true")),
    "Flux": ("flux", "120.5\n", 120.5, "infinity\n"),
}
"""By scheduler: the program, an answer, its seconds, and the answer for a job without a limit."""


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemClock, "utc_ms", lambda self: NOW_MS)


@pytest.fixture(params=list(ALLOCATIONS))
def scheduler(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    assert QUERIES.keys() == ANSWERS.keys() == set(ALLOCATIONS)
    return name


def job(scheduler: str, folder: Path, answer: str) -> Environment:
    """A job whose scheduler's program gives an answer."""
    return answering_job(scheduler, folder, ANSWERS[scheduler][0], answer)


def test_every_scheduler_says_how_long_its_job_lasts(scheduler: str, tmp_path: Path) -> None:
    _, answer, seconds, _ = ANSWERS[scheduler]
    found = time_left_s(job(scheduler, tmp_path, answer))
    assert found is not None
    assert (found[0].startswith(f"{scheduler} job "), found[1]) == (True, seconds)


def test_a_job_without_a_limit_ends_no_run(scheduler: str, tmp_path: Path) -> None:
    assert time_left_s(job(scheduler, tmp_path, ANSWERS[scheduler][3])) is None


def test_a_task_of_an_array_has_its_own_end(tmp_path: Path) -> None:
    environment = {**job("Grid Engine", tmp_path, grid_engine_jobs(h_rt="3600")), "SGE_TASK_ID": "3"}
    assert time_left_s(environment) == ("Grid Engine job 77", 7200 - 3343)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "error: no qmaster",
        "<job_info/>",
        grid_engine_jobs(h_rt="INFINITY"),
        grid_engine_jobs(h_rt="3600").replace("2026-11-27T09:57:43", "soon"),
    ],
)
def test_grid_engine_may_not_know_the_end(answer: str, tmp_path: Path) -> None:
    assert time_left_s(job("Grid Engine", tmp_path, answer)) is None


def test_a_scheduler_that_gives_no_answer_is_no_complaint(tmp_path: Path) -> None:
    environment = job("SLURM", tmp_path, "2:00")
    assert time_left_s({**environment, "PATH": "/nowhere"}) is None
    assert time_left_s({"PATH": environment["PATH"]}) is None


def test_doctor_and_run_complain_of_a_job_that_ends_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(monkeypatch, job("SLURM", tmp_path, "2:00"))
    long, short = (
        load_config(overrides={"run.dataset": "digits", "run.duration": duration}) for duration in ("2h", "1m")
    )
    assert early_end(short) is None
    complaint = early_end(long)
    assert complaint is not None
    assert complaint.startswith("SLURM job 17 ends in 2m00s, before the run: run.duration = 2h00m needs 2h01m")
    findings = CHECKS.load("primary")(Evidence(long, tmp_path / "run"))
    assert [(finding.status, finding.found) for finding in findings] == [("warning", complaint)]


def test_the_rest_of_a_resumed_run_counts(tmp_path: Path) -> None:
    environment, config = job("SLURM", tmp_path, "2:00"), load_config(overrides={"run.duration": "2h"})
    assert early_end(config, environment, rest_s=60) is None
    assert early_end(config, environment, rest_s=61) == (
        "SLURM job 17 ends in 2m00s, before the run: the rest, 1m01s, needs 2m01s with its start and end; "
        "ask for a longer job, or resume the run again in the next one"
    )


def test_an_official_run_is_refused_in_a_job_that_ends_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(monkeypatch, job("SLURM", tmp_path, "2:00"))
    official = load_config(overrides={"run.dataset": "imagenet", "run.data_dir": str(tmp_path)}, preset="official")
    with pytest.raises(EnvironmentNotReadyError, match="ends in 2m00s, before the run"):
        preflight.check_end_of_job(official)
    small = load_config(overrides={"run.dataset": "digits", "run.duration": "2h"})
    assert "before the run" in (preflight.check_end_of_job(small) or "")
    (tmp_path / "other").mkdir()
    enter(monkeypatch, job("LSF", tmp_path / "other", "99:00 L"))
    assert preflight.check_end_of_job(official) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("59", 59),
        ("1:00", 60),
        ("1:00:00", 3600),
        ("1-00:00:01", 86401),
        ("2:00:00:00", 172800),
    ],
)
def test_times_of_schedulers(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds
