"""Runs inside canned jobs of schedulers, through stand-ins for their remote starters."""

import json
import re
import stat
import sys
from pathlib import Path

import psutil
import pytest

from primary.launchers.relays.remote_starters import REMOTE_STARTERS
from tests.support.hand_made import SIMULATED, aiperf
from tests.support.hosts.allocations import enter, job_of
from tests.support.hosts.sshd import Hosts
from tests.support.processes import all_end, family, processes_with
from tests.support.runs import (
    AT_RANDOM,
    agents,
    begin,
    history,
    interrupt,
    nothing_is_left,
    report,
    wait_for,
    wait_for_another_epoch,
    wait_for_epochs,
)


@pytest.mark.parametrize("scheduler", REMOTE_STARTERS)
def test_a_run_over_the_hosts_of_a_job(scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(monkeypatch, job_of(scheduler, tmp_path / "job", ("node1", "node2")))
    output = tmp_path / "odd 'name' é"
    words = ("--launcher", "scheduler", "--replicas", 2, "--duration", "3s", "--output", output, *AT_RANDOM)
    result = aiperf("run", *SIMULATED, *words)
    assert result.returncode == 0, result.stderr
    found = report(output)
    assert found["ended"] == "deadline"
    assert [detail["state"] for detail in found["replica_details"]] == ["finished", "finished"]
    assert sorted((tmp_path / "job" / "calls").read_text().split()) == ["node1", "node2"]
    assert f"{scheduler} job" in result.stderr + result.stdout
    assert ": 2 nodes" in result.stderr + result.stdout
    assert [*output.rglob(".*.tmp")] == [], "no task with its secret is left"
    nothing_is_left(output, 60)


@pytest.mark.parametrize("scheduler", ["PBS", "LSF"])
def test_the_replicas_end_with_their_primary(scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(monkeypatch, job_of(scheduler, tmp_path / "job", ("node1",)))
    output = tmp_path / "run"
    with begin(output, "--launcher", "scheduler", "--duration", "10m", *AT_RANDOM) as process:
        wait_for_epochs(output, 2)
        remote: list[psutil.Process] = []
        # The agent and its trainer; between two trials there is none.
        while len(remote) < 2:
            remote = [member for agent in agents(output) for member in family(agent)]
        process.kill()
        assert all_end(remote)
    nothing_is_left(output, 60)


def test_a_dead_relay_costs_its_replica_and_not_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(monkeypatch, job_of("PBS", tmp_path / "job", ("node1", "node2")))
    output = tmp_path / "run"
    words = ("--launcher", "scheduler", "--replicas", 2, "--duration", "30m", "--set", "replica.restarts=0")
    with begin(output, *words, *AT_RANDOM) as process:
        wait_for_epochs(output, 5)
        remote = [member for agent in agents(output, 1) for member in family(agent)]
        relays = [found for found in processes_with("/logs/.replica-0001.") if found.name().startswith("python")]
        assert len(relays) == 1
        relays[0].kill()
        assert all_end(remote), "its agent notices the end of its input"
        wait_for(lambda: '"replica_lost"' in history(output))
        wait_for_another_epoch(output, 0)
        _, err = interrupt(process)
    assert process.returncode == 1, err
    details = report(output)["replica_details"]
    assert [detail["state"] for detail in details] == ["finished", "lost"]
    expected = "cannot be reached: the connection is lost; host node2 of PBS job 123.pbs01, started by pbsdsh"
    assert expected in details[1]["reason"]


def test_the_secret_is_for_the_owners_eyes_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relay that waits: its program is replaced by one that does not read the task."""
    enter(monkeypatch, job_of("PBS", tmp_path / "job", ("node1",)))
    waiting = tmp_path / "python"
    waiting.write_text(f"#!{sys.executable}\nimport signal\nsignal.pause()\n")
    waiting.chmod(0o755)
    output = tmp_path / "run"
    words = ("--launcher", "scheduler", "--set", f'environment.python="{waiting}"', "--set", "run.stop_grace=1")
    with begin(output, *words, *AT_RANDOM) as process:
        wait_for(lambda: [*output.glob("logs/.replica-0000.*.tmp")] and (tmp_path / "job" / "calls").exists())
        (task,) = output.glob("logs/.replica-0000.*.tmp")
        assert stat.S_IMODE(task.stat().st_mode) == 0o600
        secret = re.findall(r'"secret": "(\w+)"', task.read_text())[-1]
        assert len(secret) == 64
        assert processes_with(secret) == []
        process.terminate()
        process.communicate(timeout=240)
    assert [*output.glob("logs/.replica-0000.*.tmp")] == []
    nothing_is_left(tmp_path, 20)


def test_ssh_takes_the_hosts_of_the_job(ssh_hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def logins() -> dict[str, int]:
        logs = {name: (ssh_hosts.folder / f"{name}.log").read_text() for name in ssh_hosts.ports}
        return {name: text.count("Accepted publickey") for name, text in logs.items()}

    enter(monkeypatch, job_of("PBS", tmp_path / "job", ("h2", "h0")))
    output, before = tmp_path / "run", logins()
    result = aiperf(
        "run",
        *SIMULATED,
        "--launcher",
        "ssh",
        *ssh_hosts.overrides(),
        "--set",
        "ssh.hosts=[]",
        "--replicas",
        2,
        "--duration",
        "4s",
        "--output",
        output,
        *AT_RANDOM,
    )
    assert result.returncode == 0, result.stderr
    assert [detail["state"] for detail in report(output)["replica_details"]] == ["finished", "finished"]
    assert "PBS job 123.pbs01: 2 nodes" in result.stderr + result.stdout
    assert not (tmp_path / "job" / "calls").exists(), "without pbsdsh"
    assert {name: count > before[name] for name, count in logins().items()} == {"h0": True, "h1": False, "h2": True}


def test_a_starter_that_refuses_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = job_of("PBS", tmp_path / "job", ("node1",))
    enter(monkeypatch, {**environment, "PBS_ENVIRONMENT": ""})
    output = tmp_path / "run"
    result = aiperf("run", *SIMULATED, "--launcher", "scheduler", "--set", "replica.restarts=0", "--output", output)
    assert result.returncode == 1
    reason = report(output)["replica_details"][0]["reason"]
    assert "the replica ended with exit code 1; host node1 of PBS job 123.pbs01, started by pbsdsh" in reason
    assert "pbsdsh: not executing under PBS" in reason


@pytest.mark.parametrize("scheduler", ["PBS", "Flux"])
def test_nodes_list_shows_the_job(scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(monkeypatch, job_of(scheduler, tmp_path / "job", ("node1", "node2")))
    shown = aiperf("nodes", "list", "--format", "json")
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout)["allocation"]
    assert (found["scheduler"], found["hosts"]) == (scheduler, ["node1", "node2"])
    assert aiperf("nodes", "list").stdout.splitlines()[1:] == ["node1", "node2"]


def test_nodes_list_outside_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    enter(monkeypatch, {})
    shown = aiperf("nodes", "list", "--format", "json")
    assert (shown.returncode, json.loads(shown.stdout)) == (1, {"allocation": None})
    assert "not inside an allocation of Flux, SLURM, PBS, LSF, Grid Engine" in shown.stderr
