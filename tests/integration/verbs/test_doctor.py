"""`aiperf doctor`: real nodes, real steps, and six faults at once."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aiperf.config.dataset_manifest import SPLITS, read_dataset_manifest
from aiperf.host import this_host
from tests.support.hand_made import SIMULATED, aiperf, free_port
from tests.support.hosts.allocations import enter
from tests.support.hosts.sshd import Hosts
from tests.support.images import RECIPE, make_shards, silent
from workloads.datasets.synthesize import synthesize

FAULTY_PYTHON = """
import sys, time
from importlib.machinery import PathFinder

find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *more: None if name == "horovod" else find(name, *more)

words = sys.orig_argv
if "replica.agent.examine" in words and words[words.index("--replica") + 1] == "1":
    now = time.time_ns
    time.time_ns = lambda: now() + 60 * 10**9
"""
"""Horovod cannot be found, and the clock of replica 1 is a minute ahead."""

LIMIT_S = 840
"""Each node loads TensorFlow once or twice."""

Findings = list[dict[str, Any]]


def of(check: str, findings: Findings) -> Findings:
    return [finding for finding in findings if finding["check"] == check]


def offset_of(finding: dict[str, Any]) -> float:
    """Seconds; the measurement is as exact as the machine is quick."""
    return float(finding["found"].partition(" s off")[0].rpartition(" ")[2])


@pytest.mark.timeout(LIMIT_S + 60)
def test_a_run_that_can_work_is_examined_and_probed_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = aiperf(
        "doctor", "--dataset", "digits", "--set", "training.batch_size=8", "--format", "json", timeout_s=LIMIT_S
    )
    findings: Findings = json.loads(result.stdout)
    assert result.returncode == 0, findings
    assert all(finding.keys() == {"check", "status", "found", "remedy"} for finding in findings)
    # Under taskset the doctor names the CPUs that it may not use, and nothing else.
    confined = this_host().usable_cpus() < this_host().online_cpus()
    expected = {"placement": "warning" if confined else "ok"}
    others = [finding for finding in findings if finding["check"] != "rules"]
    assert [(each["check"], each["status"]) for each in others] == [
        (each["check"], expected.get(each["check"], "ok")) for each in others
    ], findings
    (estimate,) = of("estimate", findings)
    assert " s an epoch, by 18 steps" in estimate["found"], "20 are done; the first and the last one are not timed"
    assert "time for" in estimate["found"]
    assert "unofficial: dataset: found digits; required imagenet" in of("rules", findings)[0]["found"]
    assert "--dataset imagenet" in of("rules", findings)[0]["remedy"]
    assert list(tmp_path.iterdir()) == []


def wrong_data(folder: Path) -> Path:
    """A data set whose files were replaced by those of another one."""
    make_shards(folder / "data")
    synthesize(replace(RECIPE, seed=2), folder / "other", silent, workers=1)
    for split in SPLITS:
        pairs = zip(
            read_dataset_manifest(folder / "data").split(split).files,
            read_dataset_manifest(folder / "other").split(split).files,
            strict=True,
        )
        for target, source in pairs:
            shutil.copy(folder / "other" / source.name, folder / "data" / target.name)
    return folder / "data"


@pytest.mark.timeout(LIMIT_S + 60)
def test_six_faults_are_named_at_once(ssh_hosts: Hosts, tmp_path: Path) -> None:
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "sitecustomize.py").write_text(FAULTY_PYTHON)
    closed = f"127.0.0.1:{free_port()}"
    settings = {
        "run.min_free_disk_gib": 1e9,
        "run.dataset": "images",
        "run.data_dir": f'"{wrong_data(tmp_path)}"',
        "replica.ranks": 2,
        "training.batch_size": 10**6,
        "environment.activate": json.dumps(f'export PYTHONPATH="{tmp_path}/python:{":".join(sys.path)}"'),
        "environment.python": json.dumps(sys.executable),
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    hosts = ssh_hosts.overrides()
    hosts[1] = f'ssh.hosts=["h0", "h1", "{closed}"]'
    result = aiperf("doctor", "--launcher", "ssh", "--replicas", 3, *hosts, *words, "--format", "json",
                    "--output", tmp_path / "run", timeout_s=LIMIT_S)  # fmt: skip
    findings: Findings = json.loads(result.stdout)
    assert result.returncode == 3, findings
    bad = {check: [item for item in of(check, findings) if item["status"] != "ok"]
           for check in ("disk", "data", "nodes", "clocks", "ranks", "memory", "estimate")}  # fmt: skip
    assert "too little disk space" in bad["disk"][0]["found"]
    assert bad["data"][0]["found"].startswith("replicas 0-1: ")
    assert "sampled train images are not those of the data set" in bad["data"][0]["found"]
    assert bad["nodes"][0]["found"].startswith("replica 2: no answer: ")
    assert closed in bad["nodes"][0]["found"]
    port = closed.partition(":")[2]
    assert bad["nodes"][0]["remedy"].startswith("ssh -F "), "the same configuration"
    assert bad["nodes"][0]["remedy"].endswith(f" -p {port} 127.0.0.1 true; then: aiperf nodes probe {closed}")
    assert bad["clocks"][0]["found"].startswith("replica 1: ")
    assert offset_of(bad["clocks"][0]) == pytest.approx(60, abs=5)
    assert "2 ranks need Horovod, which is not installed" in bad["ranks"][0]["found"]
    assert "make horovod" in bad["ranks"][0]["remedy"]
    assert "GiB at batch 1000000; a rank has" in bad["memory"][0]["found"]
    assert bad["memory"][0]["remedy"].startswith("--set training.batch_size=")
    assert "not probed: the data set is not as it should be; the batch does not fit" in bad["estimate"][0]["found"]
    assert all(item["remedy"] for items in bad.values() for item in items)
    assert not (tmp_path / "run").exists()
    assert not list(tmp_path.glob(".aiperf-doctor-*"))


def test_a_dry_run_reports_what_the_run_would_meet_and_starts_nothing(tmp_path: Path) -> None:
    output = tmp_path / "run"
    shifts = ("--set", "simulated.clock_shifts_ms=[0, -60000]", "--set", "simulated.broken_replicas=[1]")
    good = aiperf("run", *SIMULATED, "--output", output, "--dry-run")
    assert (good.returncode, "a run can start" in good.stdout) == (0, True), good.stderr
    bad = aiperf("run", *SIMULATED, "--replicas", 2, *shifts, "--output", output, "--dry-run", "--format", "json")
    findings: Findings = json.loads(bad.stdout)
    assert bad.returncode == 3
    assert "simulated.broken_replicas names this replica" in of("nodes", findings)[0]["found"]
    assert offset_of(of("clocks", findings)[0]) == pytest.approx(-60, abs=5)
    assert list(tmp_path.iterdir()) == []


def test_wrong_settings_and_a_launcher_that_cannot_work_are_findings_too(tmp_path: Path) -> None:
    wrong = aiperf("doctor", "--replicas", "0", "--set", "run.duration=x", "--preset", "no", "--format", "json")
    assert wrong.returncode == 3
    assert [item["check"] for item in json.loads(wrong.stdout)] == ["settings"] * 3
    unable = aiperf("doctor", *SIMULATED, "--launcher", "ssh", "--set", "run.min_free_disk_gib=1e9",
                    "--output", tmp_path / "run", "--format", "json")  # fmt: skip
    findings: Findings = json.loads(unable.stdout)
    assert unable.returncode == 3
    assert "ssh.hosts is empty" in of("primary", findings)[0]["found"]
    assert "not examined: the launcher cannot start anything" in of("nodes", findings)[0]["found"]
    assert "too little disk space" in of("disk", findings)[0]["found"]
    assert of("clocks", findings)[0]["found"] == "not examined: no node has answered"


def test_a_job_that_is_not_described_is_a_finding_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(monkeypatch, {"PBS_JOBID": "1.head"})
    result = aiperf("doctor", *SIMULATED, "--launcher", "scheduler", "--output", tmp_path / "run", "--format", "json")
    (finding,) = of("primary", json.loads(result.stdout))
    assert (result.returncode, finding["status"]) == (3, "failed")
    assert "PBS_NODEFILE is not set" in finding["found"]
    assert finding["remedy"] == "aiperf nodes list (in the job's own script or shell)"


def test_a_program_that_does_not_start_is_reported_with_its_last_words(tmp_path: Path) -> None:
    result = aiperf("doctor", *SIMULATED, "--set", "environment.activate='echo no such module >&2; exit 7'",
                    "--output", tmp_path / "run", "--format", "json")  # fmt: skip
    nodes = of("nodes", json.loads(result.stdout))
    assert result.returncode == 3
    assert "ended with exit code 7" in nodes[0]["found"]
    assert "no such module" in nodes[0]["found"]
    slow = aiperf("doctor", *SIMULATED, "--set", "environment.activate='sleep 600'", "--time-limit", "1s",
                  "--output", tmp_path / "run", "--format", "json")  # fmt: skip
    assert "no answer within 1 s" in of("nodes", json.loads(slow.stdout))[0]["found"]
