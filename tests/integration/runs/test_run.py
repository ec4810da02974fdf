"""Whole runs through the command line: real processes, the simulated trainer."""

import contextlib
import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiperf.run_directory.paths import PRIMARY_NODE
from tests.support.hand_made import SIMULATED, aiperf
from tests.support.processes import all_end, family, listening
from tests.support.runs import (
    agents,
    begin,
    count_epochs,
    history,
    interrupt,
    nothing_is_left,
    report,
    run_until,
    wait_for,
    wait_for_epochs,
)


def set_simulated(**settings: object) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"simulated.{key}={value}")]


SIXTH_IS_OVER = r'"type":"trial_(ended|failed)","trial":6,'


def two_trials_and_three_architectures(output: Path) -> bool:
    trials = report(output)["trials"]
    completed = [trial for trial in trials if trial["state"] == "completed"]
    return len(completed) >= 2 and len({trial["architecture"] for trial in trials if trial["architecture"]}) >= 3


def test_a_run_of_two_replicas_ends_at_its_deadline(tmp_path: Path) -> None:
    output, seconds, result = run_until(tmp_path / "odd name é", 8, two_trials_and_three_architectures, "--replicas", 2)
    assert result.returncode == 0, result.stderr
    found = report(output)
    last = result.stdout.splitlines()[-1]
    assert last.startswith(f"AIPerf: score={found['score_ops']:.6e} regulated=")
    assert last.endswith(f"duration={seconds}.000 replicas=2 status=SIMULATED")
    assert "rule not met: trainer: found simulated; required keras (real training)" in result.stdout
    assert (found["ended"], found["replicas"], found["ranks"]) == ("deadline", 2, 2)
    assert {trial["state"] for trial in found["trials"]} <= {"completed", "stopped", "early_stop"}
    assert two_trials_and_three_architectures(output)
    assert sorted({trial["replica"] for trial in found["trials"]}) == [0, 1]
    assert sum(trial["operations"] for trial in found["trials"]) == found["operations_total"]
    nothing_is_left(output)
    assert list(output.rglob("checkpoint-*")) == []
    nodes = json.loads((output / "system.json").read_text())
    assert "cpu_model" in nodes["0"]
    assert nodes[PRIMARY_NODE]["host"] == nodes["0"]["host"], "both are on this machine"
    assert nodes["0"]["run_file_system_bytes"] > 0
    again = aiperf("report", output)
    assert again.stdout.splitlines()[-1] == last


def test_status_of_a_finished_run_and_formats(tmp_path: Path) -> None:
    output = tmp_path / "run"
    shown = aiperf("run", *SIMULATED, "--duration", "2s", "--output", output, "--format", "json")
    assert shown.returncode == 0, shown.stderr
    assert shown.stderr.splitlines()[-1].startswith("AIPerf: score=")
    assert json.loads(shown.stdout) == report(output)
    status = aiperf("status", output)
    assert "ended: deadline (simulated: nothing is trained); 2 of 2 s" in status.stdout
    found = json.loads(aiperf("status", output, "--format", "json").stdout)
    assert (found["state"], found["score_ops"]) == ("ended", report(output)["score_ops"])


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    output = tmp_path / "run"
    with begin(output, "--replicas", 2, "--duration", "10m") as process:
        try:
            wait_for_epochs(output)
            yield process, output
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_everything_and_stays_readable(
    running: tuple[subprocess.Popen[str], Path], number: signal.Signals
) -> None:
    process, output = running
    status = aiperf("status", output)
    assert "running" in status.stdout
    process.send_signal(number)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 1, err
    assert "rule not met: completion: found interrupted" in out
    assert out.splitlines()[-1].endswith("status=FAILED")
    nothing_is_left(output)
    found = report(output)
    assert found["operations_total"] > 0
    assert found["damages"] == found["unfinished_lines"] == []


def test_replicas_end_with_a_killed_primary_and_the_run_stays_readable(
    running: tuple[subprocess.Popen[str], Path],
) -> None:
    process, output = running
    process.kill()
    process.wait()
    nothing_is_left(output, 60)
    result = aiperf("report", output)
    assert result.returncode == 0
    assert "found unfinished" in result.stdout


def test_a_lost_replica_costs_its_work_and_not_the_run(running: tuple[subprocess.Popen[str], Path]) -> None:
    process, output = running
    (victim,) = agents(output, 1)
    trainers = victim.children()
    victim.kill()
    wait_for(lambda: "replica_lost" in history(output))
    assert all_end(trainers)
    wait_for(lambda: '"resumes":' in history(output).replace('"resumes":null', ""))
    again = output / "history" / "replica-0001-2.jsonl"
    wait_for(again.exists)
    wait_for(lambda: '"type":"epoch"' in again.read_text())
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=240)
    assert "replica 1 LOST: the replica was killed by SIGKILL" in err
    assert "replica 1 is started again" in err
    found = report(output)
    assert [detail["state"] for detail in found["replica_details"]] == ["finished", "finished"]
    assert "lost" in {trial["state"] for trial in found["trials"]}
    nothing_is_left(output)
    assert aiperf("verify", output).stdout.splitlines()[-1].endswith(": 0 problem(s)")


def test_failures_of_trials_are_reported_and_the_run_continues(tmp_path: Path) -> None:
    settings = set_simulated(fail_trials=[2], crash_trials=[3], hang_trials=[5], epoch_seconds=0.1)
    for silence_s in (4, 12, 40):  # a busy machine may take longer than 4 s to start a trainer
        output = tmp_path / str(silence_s)
        silence = ("--set", f"replica.trial_silence={silence_s}s")
        with begin(output, *settings, *silence, "--replicas", 1, "--duration", "30m") as process:
            wait_for(lambda output=output: re.search(SIXTH_IS_OVER, history(output)))  # type: ignore[misc]
            _, err = interrupt(process)
        assert process.returncode == 1, err
        trials = {trial["id"]: trial for trial in report(output)["trials"]}
        hung = {number for number, trial in trials.items() if (trial["failure_reason"] or "").startswith("hang")}
        if hung == {5}:
            break
    assert trials[2]["failure_reason"] == "build: simulated.fail_trials names this trial"
    assert trials[3]["failure_reason"].startswith("crash: the trainer was killed by SIGKILL")
    assert trials[5]["failure_reason"].startswith(f"hang: no report for {silence_s} s")
    assert (trials[2]["operations"], trials[3]["epochs"], trials[3]["lost_operations"] > 0) == (0, 1, True)
    assert trials[6]["state"] == "completed"
    # A failed round is repeated, not skipped.
    assert [trials[n]["round"] for n in range(1, 7)] == [1, 2, 2, 2, 3, 3]
    nothing_is_left(output)


def test_a_replica_that_cannot_start_is_reported_and_the_run_continues(tmp_path: Path) -> None:
    words = (*set_simulated(broken_replicas=[0]), "--replicas", 2)
    output, _, result = run_until(tmp_path / "run", 6, lambda output: count_epochs(output, 1), *words)
    assert result.returncode == 0, result.stderr
    first, second = report(output)["replica_details"]
    assert (first["state"], first["reason"]) == ("lost", "simulated.broken_replicas names this replica")
    assert (second["state"], second["trials"] > 0) == ("finished", True)
    assert "replica 0 LOST" in result.stderr
    assert "1 of 2 replicas released" in result.stderr


@pytest.mark.parametrize(
    "settings", [set_simulated(broken_replicas=[0, 1]), set_simulated(fail_trials=list(range(1, 9)))]
)
def test_with_nothing_left_the_run_stops_with_exit_code_1(tmp_path: Path, settings: list[str]) -> None:
    output = tmp_path / "run"
    result = aiperf("run", *SIMULATED, *settings, "--replicas", 2, "--duration", "5m", "--output", output)
    assert result.returncode == 1
    found = report(output)
    assert (found["ended"], found["status"]) == ("no_replicas", "FAILED")
    assert result.stdout.splitlines()[-1].endswith("replicas=2 status=FAILED")
    nothing_is_left(output)


def test_the_same_seed_proposes_the_same_first_architectures(tmp_path: Path) -> None:
    seeds = {"a": 5, "b": 5, "c": 6}
    # Long epochs, so that every candidate is ready before its round: timing is not seeded.
    for seconds in (1.5, 6, 24):
        folder = tmp_path / str(seconds)
        folder.mkdir()

        def started(name: str, folder: Path = folder) -> int:
            return history(folder / name).count('"type":"trial_started"')

        with contextlib.ExitStack() as stack:
            for name, seed in seeds.items():
                words = (*set_simulated(epoch_seconds=seconds), "--seed", seed, "--duration", "10m")
                process = stack.enter_context(begin(folder / name, *words))
                stack.callback(process.communicate)
                stack.callback(process.send_signal, signal.SIGINT)
            wait_for(lambda: min(map(started, seeds)) >= 3, 500)
        first, same, other = (
            [trial["architecture"] for trial in report(folder / name)["trials"]][:3] for name in seeds
        )
        if first == same:
            break
    assert first == same != other
    assert len(first) == 3


def test_no_process_of_a_run_listens_on_the_network(running: tuple[subprocess.Popen[str], Path]) -> None:
    process, _ = running
    # The primary, two agents, two trainers, and sometimes the next ones.
    largest, found = 0, set[str]()
    looks = 0
    while looks < 40 or largest < 5:
        assert process.poll() is None
        looks += 1
        members = family(process.pid)
        largest = max(largest, len(members))
        found |= {address for member in members for address in listening(member)}
        time.sleep(0.05)
    assert found == set()
