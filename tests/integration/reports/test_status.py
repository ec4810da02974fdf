"""The state of a run as `aiperf status` gives it, by its records and the claim of its primary."""

import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Literal

import pandas as pd
import pytest

from aiperf import __version__
from aiperf.cli.console import PlainConsole
from aiperf.cli.tables import make_table
from aiperf.config.settings import load_config
from aiperf.records.bodies import PhaseBegan, RunEnded
from aiperf.run_directory.claim import SILENCE_S, Claim
from aiperf.run_directory.manifest import write_manifest
from aiperf.run_directory.paths import RunPaths
from aiperf.run_directory.state import next_command
from analysis.output.frames import csv_tables
from analysis.output.page.view import report_page
from analysis.output.tables import print_report
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.estimates import ComparisonPart, HealthPart
from analysis.report.state import read_now
from analysis.results.glance import RunStatus, status_at_a_glance
from analysis.results.ranking import rank
from analysis.results.source import read_result
from analysis.results.status import run_status
from analysis.verbs.ranking_page import ranking_page
from analysis.verbs.status import STATUS, _status_line
from dashboard.wording import sentence_of
from dashboard.work import Answer
from tests.support.hand_made import T0_MS, HandMadeRun, ManualClock, aiperf_here


def in_progress(root: Path) -> HandMadeRun:
    run = HandMadeRun(root, {"run.duration": 100}).at(0).release(100, replicas=2)
    return run.at(1).start_trial(1).at(40).epoch(1, 1, correct=324)


def status_of(run: HandMadeRun, at_s: float) -> RunStatus:
    now_ms = T0_MS + round(at_s * 1000)
    data, state, holder = read_now(run.paths, now_ms)
    return run_status(data, build_report(data, state), holder, now_ms)


def test_what_was_not_looked_at_is_not_called_healthy(tmp_path: Path) -> None:
    data, state, holder = read_now(in_progress(tmp_path).paths, T0_MS + 60_000)
    report = build_report(data, state)
    found = run_status(data, report, holder, T0_MS + 60_000)
    assert (found.slow, found.unhealthy) == (None, None), "two replicas without samples"
    looked_at = {
        "comparison": ComparisonPart(compared=4, kinds=1, effects=()),
        "health": HealthPart(nodes=1, recorded={"xid": 1}, not_recorded=(), signs=()),
    }
    found = run_status(data, report.model_copy(update=looked_at), holder, T0_MS + 60_000)
    assert (found.slow, found.unhealthy) == ((), 0)


def claimed_by_a_dead_process(run: HandMadeRun) -> int:
    script = "import os, sys; from pathlib import Path; from aiperf.run_directory.claim import Claim; "
    script += "from aiperf.clock import SystemClock; "
    script += "Claim.acquire(Path(sys.argv[1]), SystemClock()); print(os.getpid(), flush=True); os._exit(9)"
    words = [sys.executable, "-c", script, str(run.paths.claims)]
    return int(subprocess.run(words, capture_output=True, text=True, check=False).stdout)


def claimed_elsewhere(run: HandMadeRun, at_s: float) -> None:
    Claim.acquire(run.paths.claims, ManualClock())
    (file,) = run.paths.claims.iterdir()
    file.write_text(json.dumps({**json.loads(file.read_bytes()), "host": "n7", "boot": "another"}))
    os.utime(file, (T0_MS / 1000 + at_s,) * 2)


def test_a_run_whose_primary_lives_is_running(tmp_path: Path) -> None:
    run = in_progress(tmp_path)
    with Claim.acquire(run.paths.claims, ManualClock()):
        status = status_of(run, 60)
        assert status_of(run, 101).state == "running", "its primary is about to record the end"
    assert (status.state, status.ended, status.elapsed_s, status.left_s) == ("running", None, 60.0, 40.0)
    assert status.primary == f"process {os.getpid()} on {socket.gethostname()}"
    assert [replica.state for replica in status.replicas] == ["working", "working"]
    assert (status.replicas[0].trial, status.replicas[0].epochs, status.replicas[0].accuracy) == (1, 1, 0.9)
    assert status.score_ops is not None
    assert status.next == f"aiperf status {tmp_path}"


def test_a_run_whose_primary_died_here_is_interrupted_and_says_how_to_resume(tmp_path: Path) -> None:
    run = in_progress(tmp_path / "a run")
    pid = claimed_by_a_dead_process(run)
    status = status_of(run, 60)
    assert (status.state, status.ended, status.next) == ("interrupted", None, f"aiperf resume '{tmp_path}/a run'")
    assert {replica.state for replica in status.replicas} == {"interrupted"}
    line = _status_line(status)
    died = f"interrupted: its primary (process {pid} on {socket.gethostname()}) died; resume it with: aiperf resume "
    assert died in line
    late = status_of(run, 100)
    assert (late.state, late.left_s, late.next) == ("failed", 0.0, f"aiperf report '{tmp_path}/a run'")
    assert "its deadline has passed" in _status_line(late)


def test_a_primary_elsewhere_is_dead_only_after_a_silence(tmp_path: Path) -> None:
    run = in_progress(tmp_path)
    claimed_elsewhere(run, 0)
    assert status_of(run, SILENCE_S - 1).state == "running"
    status = status_of(run, SILENCE_S + 1)
    assert (status.state, status.next) == ("silent", f"aiperf resume {tmp_path}")
    assert "its primary (process" in _status_line(status)


@pytest.mark.parametrize(("reason", "state"), [("interrupted", "interrupted"), ("deadline", "ended")])
def test_an_end_that_is_recorded_needs_no_claim(
    reason: Literal["interrupted", "deadline"], state: str, tmp_path: Path
) -> None:
    run = in_progress(tmp_path)
    end_ms = T0_MS + (50_000 if reason == "interrupted" else 100_000)
    run.primary.append(RunEnded(reason=reason, end_ms=end_ms))
    status = status_of(run, 60)
    assert (status.state, status.ended, status.primary) == (state, reason, None)
    line = _status_line(status)
    assert ("resume it with: aiperf resume" in line) == (state == "interrupted")
    assert " so far" not in line


def test_a_run_without_records_is_starting(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path / "run")
    paths.create()
    write_manifest(paths, load_config(overrides={"run.dataset": "digits"}))
    data, state, holder = read_now(paths, T0_MS)
    assert run_status(data, build_report(data, state), holder, T0_MS).state == "starting"
    paths.primary_log.parent.mkdir(exist_ok=True)
    paths.primary_log.write_text(
        "12:00:15 INFO waiting for 2 of 2 replicas, each for its connection (ssh)\n12:00:20 INFO something\n"
        "12:01:15 INFO waiting for 1 of 2 replicas, each for its first message; job 7 is PENDING\n"
        "12:01:15 INFO waiting for 1 of 2 replicas, each for its connection (slurm)\n12:01:16 INFO other\n"
    )
    waiting = run_status(data, build_report(data, state), holder, T0_MS)
    assert _status_line(waiting).endswith(
        "waiting for 1 of 2 replicas, each for its first message; job 7 is PENDING; "
        "1 of 2 replicas, each for its connection (slurm)"
    )


def test_the_json_of_a_running_run_is_its_status_and_not_a_report(tmp_path: Path) -> None:
    run = in_progress(tmp_path)
    with Claim.acquire(run.paths.claims, ManualClock()):
        shown = aiperf_here("status", tmp_path, "--format", "json")
    status = RunStatus.model_validate_json(shown.stdout)
    assert status.state == "running"
    assert "verdict" not in json.loads(shown.stdout)
    assert STATUS.description.endswith("Writes nothing.")


def test_after_a_report_standard_error_says_what_is_next(tmp_path: Path) -> None:
    run = in_progress(tmp_path / "over")
    shown = aiperf_here("report", run.paths.root, page=True)
    assert shown.stdout.splitlines()[-1].startswith("AIPerf: score=")
    page = f"next: open the page in a browser: {(run.paths.report / 'report.html').as_uri()}"
    over = f"next: check it against every rule: aiperf check {run.paths.root}"
    assert [line for line in shown.stderr.splitlines() if "working" not in line] == [over, page]
    log = tmp_path / "log"
    with log.open("w") as both:
        subprocess.run([sys.executable, "-m", "aiperf", "report", run.paths.root], stdout=both, stderr=both, check=True)
    assert log.read_text().splitlines()[-1].startswith("AIPerf: score="), "also in a job's log of both"
    assert next_command("interrupted", run.paths) == f"aiperf resume {run.paths.root}"


def test_tables_without_rows_have_their_columns(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path)
    data = read_run(run.paths)
    for name, table in csv_tables(data, build_report(data)).items():
        file = tmp_path / f"{name}.csv"
        table.to_csv(file, index=False)
        assert len(pd.read_csv(file).columns) > 1, name


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_table_cuts_a_number_and_what_is_left_out_is_named(width: int, tmp_path: Path) -> None:
    table = make_table(
        "Runs",
        "rank",
        "system",
        "processor",
        "score",
        "regulated",
        left=("system", "processor"),
        dropped=("processor", "regulated"),
    )
    table.add_row("1", "a system with quite a long name", "AMD EPYC 9654 96-Core", "42.19 GOPS", "1.234567890 TOPS")
    console = PlainConsole(file=io.StringIO(), width=width)
    console.print(table)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, shown.splitlines())) <= width
    assert "42.19 GOPS" in shown
    assert "…" not in shown
    for heading, cell in (("regulated", "1.234567890 TOPS"), ("processor", "9654")):
        assert cell in shown or f"{heading}" in shown.partition("left out at this width: ")[2]


def test_before_the_first_epoch_there_is_no_error_and_what_is_left_is_said(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"run.duration": 7200}).at(0).release(7200).at(1).start_trial(1)
    with Claim.acquire(run.paths.claims, ManualClock()):
        begun, line = status_of(run, 60), _status_line(status_of(run, 60))
        assert "running; 60 of 7200 s (1h59m left); 1 trial; no epoch yet; " in line
        assert "1m00s of 2h00m (1h59m left); 1 trial; no epoch yet; " in sentence_of(Answer(status=begun))
        run.at(90).epoch(1, 1, correct=324)
        assert "; error 0.1000; " in _status_line(status_of(run, 100))


def test_an_error_an_accuracy_and_a_time_are_written_in_one_way_by_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    run = HandMadeRun(tmp_path / "run", {"run.duration": 100}).at(0).release(100).at(1).start_trial(1)
    run.at(20).replicas[0].append(PhaseBegan(replica=0, trial=1, phase="train"))
    run.at(40).epoch(1, 1, correct=342).end(100)
    data = read_run(run.paths)
    report = build_report(data)
    print_report(report, None)
    ranking = rank([read_result(run.paths.root)], "score")
    told = {
        "page": re.sub(
            r"<script.*?</script>|<style.*?</style>| data-v=\S*", "", report_page(data, report), flags=re.DOTALL
        ),
        "tables": capsys.readouterr().out,
        "status": _status_line(status_of(run, 100)),
        "ranking": ranking_page(ranking, ()),
    }
    assert {name: "0.0500" in text for name, text in told.items()} == dict.fromkeys(told, True)
    assert "0.9500" in told["page"] and "0.9500" in told["tables"]
    for name, text in told.items():
        for_people = text.partition("AIPerf: score")[0]  # the final line is for programs
        assert not re.search(r"\b0\.050{3,}\b|\b0\.95(?!00\b)|\b5\.0 %", for_people), name
        assert not re.search(r"\b\d+s\b", re.sub(r"\d+m\d+s", "", for_people)), f"{name}: 20 s, 1m20s"


def test_the_lost_come_first_with_their_node_and_the_end_says_why(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"run.replicas": 3}).at(0).release(100, replicas=3).at(1).start_trial(1)
    run.at(20).epoch(1, 1).at(30).lose(2, "killed by SIGKILL;\nout of memory").support(100).end(100)
    status = status_of(run, 101)
    first = status.replicas[0]
    assert (first.replica, first.state, first.node) == (2, "lost", "node-2")
    lines = aiperf_here("report", tmp_path).stdout.splitlines()
    why = next(line for line in lines if line.startswith("why: "))
    assert why == "why: 1 of 3 replicas lost: replica 2 (node-2): killed by SIGKILL; out of memory"
    assert lines.index(why) == len(lines) - 2


def ended(root: Path) -> HandMadeRun:
    return in_progress(root).support(100).end(100)


def test_the_status_after_a_report_is_what_the_report_found_until_a_file_changes(tmp_path: Path) -> None:
    run = ended(tmp_path / "a run")
    assert status_at_a_glance(run.paths, T0_MS) is None, "there is no report yet"
    aiperf_here("report", run.paths.root)
    found, at_once = status_of(run, 200), status_at_a_glance(run.paths, T0_MS)
    assert at_once is not None
    assert at_once.source == "report"
    assert at_once.model_copy(update={"source": "records"}) == found
    assert (found.state, found.left_s, found.next) == ("ended", 0.0, f"aiperf report '{tmp_path}/a run'")
    assert sentence_of(Answer(status=found)).endswith("; unofficial")
    shown = json.loads(aiperf_here("status", run.paths.root, "--format", "json").stdout)
    assert RunStatus.model_validate(shown) == at_once
    file = run.paths.history_files()[0]
    content = file.read_bytes()
    file.write_bytes(content[:-2] + b"!\n")
    os.utime(file, ns=(file.stat().st_atime_ns, 0))
    assert status_at_a_glance(run.paths, T0_MS) is None, "the same size"
    aiperf_here("report", run.paths.root)
    assert status_at_a_glance(run.paths, T0_MS) == found.model_copy(
        update={"source": "report", "status": "FAILED", "score_ops": None, "regulated_score_ops": None}
    ), "a damaged record costs the score"
    run.paths.history_file("replica-0001-77").touch()
    assert status_at_a_glance(run.paths, T0_MS) is None, "another file"


def test_a_copy_another_version_and_a_damaged_file_are_read_from_the_records(tmp_path: Path) -> None:
    run = ended(tmp_path / "run")
    aiperf_here("report", run.paths.root)
    shutil.copytree(run.paths.root, tmp_path / "copy")
    assert status_at_a_glance(RunPaths(tmp_path / "copy"), T0_MS) is None
    kept = run.paths.kept_status.read_text()
    for changed in (kept.replace(__version__, "0.0.1", 1), kept[:-9], kept.replace('"ended"', '"running"', 1), "[]"):
        run.paths.kept_status.write_text(changed)
        assert status_at_a_glance(run.paths, T0_MS) is None
        assert json.loads(aiperf_here("status", run.paths.root, "--format", "json").stdout)["source"] == "records"


def test_a_run_that_may_be_resumed_keeps_no_status(tmp_path: Path) -> None:
    run = in_progress(tmp_path)
    run.primary.append(RunEnded(reason="interrupted", end_ms=T0_MS + 50_000))
    assert aiperf_here("report", tmp_path).returncode == 0
    assert run.paths.report_json.exists()
    assert not run.paths.kept_status.exists(), "by the clock it has failed, and by another it has not"


def test_the_report_of_a_folder_and_of_an_archive_keeps_no_status(tmp_path: Path) -> None:
    run = ended(tmp_path / "run")
    aiperf_here("report", run.paths.root, "--output", tmp_path / "out")
    assert (tmp_path / "out" / "report.json").exists()
    assert not run.paths.kept_status.exists()
    aiperf_here("report", run.paths.root)
    assert aiperf_here("export", run.paths.root, "--file", tmp_path / "a.tar.gz").returncode == 0
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        names = [Path(name).name for name in archive.getnames()]
    assert "report.json" in names
    assert "status.json" not in names, "it would not be true of any copy"
    assert aiperf_here("verify", run.paths.root).stdout.endswith(" 0 problem(s)\n")


def test_a_failed_start_ends_with_its_cause_and_is_not_offered_to_be_resumed(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"run.replicas": 2})
    for replica in range(2):
        run.lose(replica, "sbatch: error: invalid partition specified: gpu")
    run.primary.append(RunEnded(reason="no_replicas", end_ms=T0_MS + 1000))
    shown = aiperf_here("report", tmp_path)
    why, last = shown.stdout.splitlines()[-2:]
    assert why == "why: 2 of 2 replicas lost: replicas 0, 1: sbatch: error: invalid partition specified: gpu"
    assert last.endswith("status=FAILED")
    assert "next: correct the cause, then start again with a new --output; " in shown.stderr
    assert "resume" not in shown.stdout + shown.stderr


def test_an_end_at_which_no_replica_was_left_says_so(tmp_path: Path) -> None:
    run = in_progress(tmp_path)
    assert "left" not in _status_line(status_of(run.at(50).lose(0), 60)).partition("; ")[0]
    run.at(70).lose(1).end(100)
    line = _status_line(status_of(run, 101))
    assert ": ended: deadline" in line
    assert "(no replica was left);" in line
