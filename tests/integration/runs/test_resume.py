"""Interrupted runs are resumed for the rest of their time, by one primary at a time."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aiperf.config.duration import format_duration
from aiperf.records.bodies import RunEnded
from aiperf.run_directory.claim import find_holder
from tests.faults.campaign import campaign, parse
from tests.support.hand_made import T0_MS, HandMadeRun, aiperf
from tests.support.hosts.allocations import answering_job, enter
from tests.support.runs import (
    agents,
    begin,
    history,
    killed_with_time_left,
    nothing_is_left,
    report,
    wait_for,
    wait_for_epochs,
)


def start(output: Path, duration: str, *words: str) -> subprocess.Popen[str]:
    return begin(output, "--replicas", 2, "--duration", duration, *words)


def test_a_new_clock_is_a_part_of_its_own_and_the_job_may_end_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, seconds = killed_with_time_left(tmp_path / "run", 6, 4, "--replicas", 2)
    first = report_of(output)
    enter(monkeypatch, answering_job("SLURM", tmp_path, "squeue", "0:30"))
    result = aiperf("resume", output, "--new-clock")
    rest, needed = format_duration(seconds), format_duration(seconds + 60)
    assert result.returncode == 0, result.stderr
    assert f"WARNING: SLURM job 17 ends in 30 s, before the run: the rest, {rest}, needs {needed}" in result.stderr
    found = report(output)
    assert (found["duration_s"], found["ended"]) == (seconds, "deadline")
    assert {"rule": "clock", "found": "2 clock(s)"}.items() <= next(
        v for v in found["violations"] if v["rule"] == "clock"
    ).items()
    early = {trial["id"] for trial in first["trials"]}
    assert all(trial["operations"] == 0 for trial in found["trials"] if trial["id"] in early)
    assert aiperf("check", output, "--replay", "all").returncode == 0


def report_of(output: Path) -> dict[str, list[dict[str, int]]]:
    aiperf("report", output)
    return report(output)


def test_a_second_primary_is_refused_and_the_first_one_named(tmp_path: Path) -> None:
    output = tmp_path / "run"
    with start(output, "10m") as process:
        wait_for_epochs(output)
        second = aiperf("resume", output)
        assert second.returncode == 3
        assert f"another primary has this run: process {process.pid} on" in second.stderr
        assert "since 20" in second.stderr
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=240)
    assert re.search(rf"^next: resume the run, for the \S+ that are left: aiperf resume {output}$", err, re.MULTILINE)
    assert err.splitlines()[-1] == f"next: draw its page and figures: aiperf report {output}"
    assert find_holder(output / "claims", 0) is None


def test_a_second_interrupt_does_not_wait(tmp_path: Path) -> None:
    output = tmp_path / "run"
    with start(output, "10m", "--set", "run.stop_grace=10m") as process:
        wait_for_epochs(output)
        for agent in agents(output):
            agent.send_signal(signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        time.sleep(1)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=240)
    nothing_is_left(output)
    assert aiperf("report", output).returncode == 0


def test_a_damaged_run_is_not_resumed(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path / "run").at(0).release(100).at(1).start_trial(1)
    run.at(5).epoch(1, 1)
    file = run.paths.history_file("replica-0000-1")
    file.write_bytes(file.read_bytes().replace(b'"correct":300', b'"correct":301'))
    result = aiperf("resume", run.paths.root)
    assert result.returncode == 2
    assert "1 damaged record(s)" in result.stderr
    assert "aiperf verify" in result.stderr


def test_a_run_whose_deadline_has_passed_stays_failed(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path / "run", {"run.duration": 100}).at(0).release(100).at(1).start_trial(1).at(5).epoch(1, 1)
    run.at(9).primary.append(RunEnded(reason="interrupted", end_ms=T0_MS + 9000))
    before = history(run.paths.root)
    result = aiperf("resume", run.paths.root)
    assert result.returncode == 2
    assert "the deadline passed" in result.stderr
    assert "--new-clock" in result.stderr
    assert history(run.paths.root) == before
    assert find_holder(run.paths.claims, 0) is None
    assert aiperf("report", run.paths.root).stdout.splitlines()[-1].endswith("status=FAILED")


def test_a_closed_terminal_does_not_hurt_the_run(tmp_path: Path) -> None:
    output = tmp_path / "run"
    with start(output, "8s") as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.stderr.close()
        wait_for(lambda: '"type":"run_ended"' in history(output))
        assert process.stdout is not None
        out = process.stdout.read()
    assert process.returncode == 0
    assert out.splitlines()[-1].startswith("AIPerf: score=")


@pytest.mark.parametrize("suite", ["automl", "science"])
def test_a_short_fault_campaign_loses_and_doubles_nothing(suite: str) -> None:
    words = ("--faults", "4", "--seed", "5", "--under", "local", "--menu", "kill", "--suite", suite)
    struck, books = campaign(parse(words))
    assert struck["local"].total() >= 4
    assert books.clean, books.notes


def damage_bytes(run: HandMadeRun) -> None:
    file = run.paths.history_file("replica-0000-1")
    file.write_bytes(file.read_bytes().replace(b'"correct":300', b'"correct":301'))


def drop_line(run: HandMadeRun) -> None:
    file = run.paths.history_file("replica-0000-1")
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:1] + lines[2:]))


def append(file: Path, data: bytes) -> None:
    file.write_bytes(file.read_bytes() + data)


DAMAGES: dict[str, tuple[Callable[[HandMadeRun], object], str]] = {
    "a flipped byte": (damage_bytes, r"replica-0000-1.jsonl line 2: the checksum does not fit"),
    "a deleted line": (drop_line, r"replica-0000-1.jsonl line 2: the record has number 2; expected number 1"),
    "a deleted file": (
        lambda run: run.paths.history_file("replica-0000-1").unlink(),
        r"replica-0000-1.jsonl: the history of replica 0 is missing",
    ),
    "a foreign file": (lambda run: (run.paths.root / "notes.txt").write_text("x"), "notes.txt: does not belong"),
    "a temporary file": (
        lambda run: (run.paths.models / ".weights.npz.1.tmp").write_text("x"),
        "models/.weights.npz.1.tmp: a temporary file left behind",
    ),
    "another architecture": (
        lambda run: run.paths.architecture(run.architecture.hash).write_text("{"),
        r"models/[0-9a-f]{16}/architecture.json: ",
    ),
    "broken weights": (
        lambda run: run.paths.weights(run.architecture.hash, 1).write_bytes(b"PK no"),
        r"weights-000001.npz: cannot be read",
    ),
    "an unfinished line": (
        lambda run: append(run.paths.history_file("primary-1"), b'{"half'),
        "primary-1.jsonl: ends in an unfinished line",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_verify_finds_and_names(tmp_path: Path, name: str) -> None:
    run = HandMadeRun(tmp_path / "run").at(0).release(100).at(1).start_trial(1)
    run.at(5).epoch(1, 1).at(9).epoch(1, 2).end_trial(1).end(100)
    clean = aiperf("verify", run.paths.root)
    assert (clean.returncode, clean.stdout.splitlines()[-1][-14:]) == (0, ": 0 problem(s)")
    damage, pattern = DAMAGES[name]
    damage(run)
    found = aiperf("verify", run.paths.root)
    assert found.returncode == 1
    assert re.search(pattern, found.stdout), found.stdout
    assert "Traceback" not in found.stderr


def test_a_newer_version_of_records_is_named(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path / "run").at(0).release(100)
    file = run.paths.history_file("primary-1")
    import zlib

    line = file.read_bytes().splitlines()[0]
    head = line[: line.rindex(b',"crc32"')].replace(b'"version":2', b'"version":3')
    file.write_bytes(
        head + b',"crc32":"%08x"}\n' % zlib.crc32(head) + b"\n".join(file.read_bytes().splitlines()[1:]) + b"\n"
    )
    assert "record version 3; this program reads versions 1 to 2" in aiperf("verify", run.paths.root).stdout
    assert json.loads(run.paths.run.read_text())["schema_version"] == 1
