"""Runs under NNI: its own manager, the interface of its portal, its own command line."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import psutil

import analysis
from aiperf.config.settings import load_config
from primary.nni.portal import end_in
from slurm.local_cluster import LocalCluster
from tests.support.hand_made import SIMULATED, aiperf, free_port
from tests.support.hostile import ENTRY_POINT, environment, fill
from tests.support.hosts.sshd import Hosts
from tests.support.images import make_shards
from tests.support.portal import NOT_THERE, Portal, final_of, loopback_addresses
from tests.support.processes import ask, command, family, processes_with
from tests.support.runs import AT_RANDOM, nothing_is_left, raw_records, report
from tests.support.trainings.installed import need_frameworks


@contextlib.contextmanager
def under_nni(home: Path, *words: object) -> Iterator[subprocess.Popen[str]]:
    """A command that starts NNI, in a folder of files that are named like modules."""
    command = [str(ENTRY_POINT), *map(str, words)]
    variables = {**environment(), "HOME": str(fill(home))}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=variables, cwd=home) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=240)


def new_run(portal: Portal, replicas: int = 2) -> tuple[object, ...]:
    port = f"nni.port={portal.port}"
    return ("run", "--manager", "nni", "--replicas", replicas, "--output", portal.output, "--set", port, "--no-page")


def nnictl(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nni.tools.nnictl.nnictl", *words]
    return subprocess.run(
        command, env={**os.environ, "HOME": str(home)}, capture_output=True, text=True, timeout=500, check=True
    )


def end_of(process: subprocess.Popen[str], timeout_s: float = 500) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=timeout_s)
    return process.returncode, out, err


def test_nni_fails_cancels_stops_and_resumes_over_slurm(slurm: LocalCluster, tmp_path: Path) -> None:
    output, home = tmp_path / "odd name é", tmp_path / "home"
    portal = Portal(output, free_port())
    words = (
        *new_run(portal),
        *SIMULATED,
        "--launcher",
        "slurm",
        "--duration",
        "20m",
        "--set",
        "search.hpo=none",
        *AT_RANDOM,
        *("--set", "simulated.fail_trials=[3]"),
        "--set",
        "simulated.hang_trials=[5]",  # it works until it is cancelled, however slow this machine is
        "--set",
        "simulated.epoch_seconds=1",
    )
    with under_nni(home, *words) as process:
        portal.wait_for(lambda: portal.trials()[3]["status"] == "FAILED")
        assert portal.listeners() == loopback_addresses()
        portal.wait_for(lambda: portal.trials()[5]["status"] == "RUNNING")
        portal.ask(f"/trial-jobs/{portal.trials()[5]['trialJobId']}", "DELETE")
        portal.wait_for(lambda: portal.trials()[5]["status"] == "USER_CANCELED")
        portal.wait_for(lambda: max(portal.trials()) >= 7)  # the replica of a cancelled trial continues
        nnictl(home, "stop", portal.experiment)
        code, out, err = end_of(process)
    assert code == 1, err
    assert out.splitlines()[-1].endswith("status=FAILED")
    nothing_is_left(output, 60)
    states = {trial["id"]: (trial["state"], trial["failure_reason"]) for trial in report(output)["trials"]}
    assert states[3][0] == states[5][0] == "failed"
    assert "simulated.fail_trials names this trial" in states[3][1]
    assert "cancelled: ended in NNI" in states[5][1]
    interrupted = {number for number, (state, _) in states.items() if state == "stopped"}

    def resumed() -> set[int]:
        return {record["resumes"] for record in raw_records(output) if record.get("resumes")}

    with under_nni(home, "resume", output, "--no-page") as process:
        portal.wait_for(lambda: resumed() >= interrupted and max(portal.trials()) > max(states))
        assert aiperf("stop", output).returncode == 0
        code, _, err = end_of(process)
    assert (code, "run resumed" in err) == (1, True), err
    found = report(output)
    assert found["ended"] == "interrupted"
    assert max(trial["id"] for trial in found["trials"]) > max(states)
    assert resumed() == interrupted
    nothing_is_left(output, 60)


def process_with(output: Path, *words: str) -> psutil.Process:
    """The process of a run that has all these words in its command line."""
    return next(process for process in processes_with(output) if {*words} <= set(command(process).split()))


def succeeded(portal: Portal) -> int:
    """Trials that have ended well."""
    return [trial["status"] for trial in portal.trials().values()].count("SUCCEEDED")


def test_a_killed_primary_and_a_killed_manager_leave_nothing_behind(ssh_hosts: Hosts, tmp_path: Path) -> None:
    output, home = tmp_path / "run", tmp_path / "home"
    portal = Portal(output, free_port())
    words = (
        *new_run(portal),
        *SIMULATED,
        "--launcher",
        "ssh",
        *ssh_hosts.overrides(),
        "--duration",
        "10m",
        "--set",
        "simulated.epoch_seconds=1",
        *AT_RANDOM,
        "--set",
        f"nni.directory={output}-nni",
    )
    with under_nni(home, *words) as process:
        portal.wait_for(lambda: "SUCCEEDED" in {trial["status"] for trial in portal.trials().values()})
        process_with(output, "primary.nni").kill()
        code, _, err = end_of(process)
    assert code == 1
    assert f"resume with: aiperf resume {output}" in err
    nothing_is_left(output, 60)
    before = len(raw_records(output))
    # The working directories of NNI's trials and of its tuner.
    for folder in (output, *tmp_path.glob("run-nni/*/log")):
        fill(folder)
    with under_nni(home, "resume", output, "--no-page") as process:
        portal.wait_for(lambda: portal.status == "RUNNING" and len(raw_records(output)) > before + 20)
        earlier = succeeded(portal)
        portal.wait_for(lambda: succeeded(portal) > earlier)
        process_with(output, "--trace-uncaught").kill()
        code, out, err = end_of(process)
    assert code == 1, err
    assert out.splitlines()[-1].endswith("status=FAILED")
    nothing_is_left(output, 60)
    assert report(output)["ended"] == "interrupted"
    assert list(tmp_path.glob("run-nni/*/db/nni.sqlite"))
    assert not (output / "nni").exists()


def test_a_run_whose_manager_did_not_start_is_resumed_in_a_new_experiment(tmp_path: Path) -> None:
    output, home, dies = tmp_path / "run", tmp_path / "home", tmp_path / "dies.cjs"
    home.mkdir()
    dies.write_text("process.exit(7)")
    portal = Portal(output, free_port())
    words = (*new_run(portal), *SIMULATED, "--duration", "30s", "--set", "simulated.epoch_seconds=1", *AT_RANDOM)
    failed = aiperf(*words, environment={"HOME": str(home), "NODE_OPTIONS": f"--require {dies}"})  # type: ignore[arg-type]
    assert failed.returncode == 3
    assert "NNI's manager did not start" in failed.stderr.splitlines()[-1]
    first = portal.experiment
    resumed = aiperf("resume", output, environment={"HOME": str(home)})
    assert resumed.returncode == 0, resumed.stderr
    assert f"NNI has not kept experiment {first}: the run is resumed in a new one" in resumed.stderr
    assert portal.experiment != first
    found = report(output)
    assert found["ended"] == "deadline"
    assert resumed.stdout.splitlines()[-1].startswith(f"AIPerf: score={found['score_ops']:.6e} ")
    assert [aiperf(verb, output).returncode for verb in ("verify", "check")] == [0, 0]
    nothing_is_left(output, 60)


def test_duration_and_concurrency_are_nni_s_controls(tmp_path: Path) -> None:
    output, home = tmp_path / "run", tmp_path / "home"
    portal = Portal(output, free_port())
    words = (
        *new_run(portal),
        *SIMULATED,
        "--duration",
        "10m",
        "--set",
        "simulated.epoch_seconds=0.5",
        "--set",
        "training.max_epochs=2",
        "--set",
        "search.hpo=none",
        *AT_RANDOM,
    )
    with under_nni(home, *words) as process:
        portal.wait_for(lambda: len(portal.trials()) >= 2)
        for member in family(process.pid):  # a dropped login ends none of NNI's processes, either
            ask(partial(member.send_signal, signal.SIGHUP), None)
        profile = portal.ask("/experiment")
        assert profile["params"]["trialConcurrency"] == 2
        left_s = int(profile["params"]["maxExperimentDuration"].removesuffix("s"))
        assert 600 <= left_s < 600 + load_config().run.start_timeout, "set when the replicas were released"
        profile["params"]["trialConcurrency"] = 1
        portal.ask("/experiment?update_type=TRIAL_CONCURRENCY", "PUT", profile)
        last = max(portal.trials())
        portal.wait_for(lambda: max(portal.trials()) >= last + 4)
        end_in(portal.port, 0)
        code, out, err = end_of(process)
    assert code == 1, err
    assert out.splitlines()[-1].endswith("status=FAILED")
    assert f"ssh -L {portal.port}:127.0.0.1:{portal.port} " in err
    assert report(output)["ended"] == "interrupted"
    records = raw_records(output)
    ended = {record["trial"]: record["time"] for record in records if record["type"] == "trial_ended"}
    issued = {record["trial"]: record["time"] for record in records if record["type"] == "job_issued"}
    # The two that ran when it was lowered, and one that NNI may have requested, end next to others.
    assert all(issued[trial] > ended[trial - 1] for trial in (last + 3, last + 4))
    nothing_is_left(output, 60)


SCHEMA = json.loads((Path(analysis.__file__).parent / "report.schema.json").read_text())

RECORDED = {
    "replica_ready",
    "run_released",
    "job_issued",
    "trial_started",
    "phase",
    "epoch",
    "trial_ended",
    "run_ended",
    "trial_built",
    "epoch_witnessed",
    "trial_closed",
}
"""An epoch of 46 images may end before a report of its progress is due."""


def test_real_training_under_nni(tmp_path: Path) -> None:
    output, home = tmp_path / "run", tmp_path / "home"
    portal = Portal(output, free_port())
    make_shards(tmp_path / "images")
    need_frameworks("torch")  # it starts sooner than others
    data = ("--framework", "torch", "--dataset", "images", "--data-dir", tmp_path / "images")
    settings = (*data, "--duration", "20m", "--set", "training.max_epochs=1", "--format", "json")
    shown: dict[int, dict[str, Any]] = {}
    curves: dict[int, list[float]] = {}
    begun: set[int] = set()
    with under_nni(home, *new_run(portal, replicas=1), *settings) as process:
        while process.poll() is None and (len(shown) < 2 or len(begun) < 4):
            with contextlib.suppress(*NOT_THERE):
                begun = {*portal.trials()}
                shown |= {n: trial for n, trial in portal.trials().items() if trial["status"] == "SUCCEEDED"}
                curves |= {n: portal.curve(trial) for n, trial in shown.items() if n not in curves}
            time.sleep(0.5)
        assert aiperf("stop", output).returncode == 0
        code, out, err = end_of(process)
    assert code == 1, err
    assert json.loads(out) == report(output)
    assert err.splitlines()[-1].endswith("status=FAILED")
    jsonschema.validate(report(output), SCHEMA)
    assert aiperf("verify", output).returncode == 0
    checked = json.loads(aiperf("check", output, "--format", "json").stdout)
    assert (checked["differences"], checked["damages"]) == ([], [])
    assert checked["replayed"]["checked"] == checked["replayed"]["equal"] > 0
    flaws = [rule["rule"] for rule in checked["rules"] if rule["group"] == "integrity" and not rule["passed"]]
    assert flaws == ["completion"], "it was stopped, and nothing else is wrong"
    assert {record["type"] for record in raw_records(output)} - {"progress"} == RECORDED
    trials = {trial["id"]: trial for trial in report(output)["trials"]}
    assert len(trials) >= 4
    assert set(shown) <= {number for number, trial in trials.items() if trial["state"] in ("completed", "early_stop")}
    assert len(shown) >= 2
    for number, trial in shown.items():
        assert as_shown(trials[number]) == trial["parameters"]
        assert curves[number] == [trials[number]["best_accuracy"]]
        assert final_of(trial) == trials[number]["best_accuracy"]
        assert final_of(trial, "search_accuracy") == (
            trials[number]["predicted_accuracy"] or trials[number]["best_accuracy"]
        )


def as_shown(trial: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a trial in the portal, from the report."""
    same = {key: trial[key] for key in ("replica", "round", "point", "architecture", "depth")}
    parent = {"parent": trial["parent"]} if trial["parent"] else {}
    costs = {"operations_per_image": trial["image_operations"], "weights": trial["parameters"]}
    return {"trial": trial["id"], "epochs": 1, **same, **parent, **costs, **trial["hyperparameters"]}
