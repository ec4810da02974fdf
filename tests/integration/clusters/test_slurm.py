"""Runs on a real SLURM cluster: inside and outside allocations, dying nodes, cancelled runs."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from aiperf.clock import SystemClock
from aiperf.config.settings import load_config
from aiperf.host import this_host
from primary.allocations.time_left import time_left_s
from primary.launchers import ReplicaSpec, make_launcher
from replica.agent.share import slots_of_nodes
from replica.trainer.starters import STARTERS, RankRequest
from slurm.local_cluster import LocalCluster
from tests.support.hand_made import SIMULATED, aiperf
from tests.support.images import TRAIN, VALIDATION, make_shards
from tests.support.needs import need_open_mpi
from tests.support.nodes.measured import MICRO, check_measured_node
from tests.support.processes import all_end, ask, listening, processes_with, words_of
from tests.support.runs import (
    AT_RANDOM,
    all_have_epochs,
    begin,
    history,
    interrupt,
    interrupt_series,
    nothing_is_left,
    own_processes,
    raw_records,
    report,
    run_until,
    wait_for,
    wait_for_another_epoch,
    wait_for_epochs,
)

SLURM = ("--launcher", "slurm", *AT_RANDOM)


def queue(*options: str) -> list[str]:
    words = ["squeue", "--noheader", "--format=%i %j %T", *options]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split("\n")[:-1]


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_adding_nodes_is_changing_one_number(allocation: str, tmp_path: Path, replicas: int) -> None:
    words = (*SLURM, "--replicas", replicas)
    output, _, result = run_until(tmp_path / "run", 6, lambda output: all_have_epochs(output, replicas), *words)
    assert result.returncode == 0, result.stderr
    found = report(output)
    assert (found["replicas"], found["ranks"], found["ended"]) == (replicas, replicas, "deadline")
    assert all(detail["operations"] > 0 for detail in found["replica_details"])
    assert f"replicas={replicas} " in result.stdout.splitlines()[-1]
    assert steps(allocation) == [], "no step is left behind"
    warnings = [line for line in result.stderr.splitlines() if "WARNING" in line]
    # Where these tests may use only a part of the CPUs, so may the nodes of their cluster.
    confined = this_host().usable_cpus() < this_host().online_cpus()
    assert all(confined and "can use only" in line for line in warnings), "every replica has its node"


def test_a_series_that_is_killed_with_its_run_resumes_it(allocation: str, tmp_path: Path) -> None:
    interrupt_series(tmp_path / "series", "--launcher", "slurm", orphan=False)
    assert steps(allocation) == []


def test_a_replica_of_two_nodes_trains(allocation: str, tmp_path: Path) -> None:
    need_open_mpi()
    output, images = tmp_path / "run", tmp_path / "images"
    make_shards(images)
    words = [
        *SLURM, "--replicas", 1, "--duration", "10m", "--output", output, "--no-page",
        "--dataset", "images", "--data-dir", images,
        "--set", "replica.nodes=2", "--set", "replica.cpu_threads=1", "--set", "training.max_epochs=4",
        "--set", "replica.warm_up=false",
    ]  # fmt: skip
    command = [sys.executable, "-m", "aiperf", "run", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for_epochs(output, timeout_s=240)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=240)
    found = report(output)
    assert found["ranks"] == 2, out
    (trial,) = found["trials"]
    assert (trial["images_trained"], trial["images_evaluated"]) == (TRAIN, VALIDATION)
    assert steps(allocation) == []


def steps(allocation: str) -> list[str]:
    return queue("--steps", f"--jobs={allocation}")


def test_ranks_of_further_nodes_end_with_their_replica_even_if_they_hang(allocation: str, tmp_path: Path) -> None:
    need_open_mpi()
    overrides = {"run.dataset": "digits", "run.launcher": "slurm", "run.replicas": 2, "replica.nodes": 2}

    async def scenario() -> None:
        launcher = make_launcher(load_config(overrides=overrides), SystemClock())
        first = await launcher.start(asleep(0, ("n1", "n2"), tmp_path))
        await asyncio.to_thread(wait_for, lambda: len(steps(allocation)) == len(mpi_daemons()) == 2)
        daemons = mpi_daemons()
        second = await launcher.start(asleep(1, ("n3", "n4"), tmp_path))
        await asyncio.to_thread(wait_for, lambda: len(steps(allocation)) == len(mpi_daemons()) == 4)
        for daemon in daemons:
            daemon.suspend()
        await first.cancel(1)
        assert len(steps(allocation)) == 2, "the other replica's"
        assert len(mpi_daemons()) == 2
        await second.cancel(1)

    asyncio.run(scenario())
    assert steps(allocation) == []
    assert all_end(mpi_daemons())


def asleep(replica: int, hosts: tuple[str, ...], folder: Path) -> ReplicaSpec:
    """A replica whose ranks sleep, whatever options they get."""
    ranks = STARTERS.load("mpirun")(RankRequest(("sh", "-c", "sleep 600"), ranks=len(hosts), hosts=hosts))
    slots = [f"{name}={value}" for name, value in slots_of_nodes(hosts, len(hosts)).items()]
    return ReplicaSpec(replica, ("env", *slots, *ranks), folder / f"{replica}.log")


def mpi_daemons() -> list[psutil.Process]:
    """Open MPI's, one on each node."""
    return [process for process in psutil.process_iter() if ask(process.name, "") == "orted"]


def test_a_step_that_keeps_replicas_off_is_named(slurm: LocalCluster, tmp_path: Path) -> None:
    options = ["--replicas", "2", "--set", "replica.per_node=2", "--duration", "5s", "--output", tmp_path / "run"]
    inside = [sys.executable, "-m", "aiperf", "run", *SIMULATED, *SLURM, "--no-page", *options]
    words = ["salloc", "--quiet", "--nodes=1", "--exclusive", "srun", "--ntasks=1", "--cpus-per-task=16"]
    held = subprocess.run([*words, *map(str, inside)], capture_output=True, text=True, check=False)
    assert held.returncode != 0
    assert re.search(r"this is SLURM's step \d+\.0 \(srun --pty\?\), beside which SLURM starts no", held.stderr)
    shared = subprocess.run([*words, "--overlap", *map(str, inside)], capture_output=True, text=True, check=False)
    assert shared.returncode == 0, shared.stderr
    assert report(tmp_path / "run")["ended"] == "deadline"


@pytest.mark.usefixtures("small_caches")
def test_the_generated_script_runs_by_sbatch(slurm: LocalCluster, tmp_path: Path) -> None:
    output, script = tmp_path / "run", tmp_path / "job.sh"
    made = aiperf(
        "slurm", "script", *SIMULATED, "--replicas", 3, "--duration", "15s", "--name", "odd name",
        "--output", output, "--file", script, "--log", tmp_path / "job.log", "--set", "slurm.time=00:10:00", *MICRO,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    assert "3 node(s); submit it with: sbatch" in made.stdout
    subprocess.run(["sbatch", str(script)], check=True)
    wait_for(lambda: queue() == [], 500)
    check_measured_node(output)
    found = report(output)
    assert (found["name"], found["ended"], found["replicas"]) == ("odd name", "deadline", 3)
    assert aiperf("check", output).returncode == 0
    assert (tmp_path / "job.log").read_text().splitlines()[-1].startswith("AIPerf: score=")


def test_slurms_warning_before_the_time_limit_ends_the_run_in_order(slurm: LocalCluster, tmp_path: Path) -> None:
    output, script = tmp_path / "run", tmp_path / "job.sh"
    made = aiperf(
        "slurm",
        "script",
        *SIMULATED,
        "--duration",
        "10m",
        "--output",
        output,
        "--file",
        script,
        "--log",
        tmp_path / "job.log",
    )
    assert made.returncode == 0, made.stderr
    submitted = subprocess.run(["sbatch", "--parsable", str(script)], capture_output=True, text=True, check=True)
    wait_for_epochs(output)
    subprocess.run(["scancel", "--batch", "--signal=TERM", submitted.stdout.strip()], check=True)
    wait_for(lambda: queue() == [])
    assert report(output)["ended"] == "interrupted"
    assert "status=FAILED" in (tmp_path / "job.log").read_text().splitlines()[-1]


def start(output: Path, *words: object) -> subprocess.Popen[str]:
    return begin(output, *SLURM, *words)


def test_a_node_that_dies_is_named_and_the_others_finish(allocation: str, slurm: LocalCluster, tmp_path: Path) -> None:
    output = tmp_path / "run"
    with start(output, "--replicas", 4, "--duration", "30m", "--set", "run.replica_silence=10s") as process:
        wait_for(lambda: all_have_epochs(output, 4))
        slurm.kill_node("n3")
        wait_for(lambda: '"replica_lost"' in history(output))
        for replica in (0, 1, 3):
            wait_for_another_epoch(output, replica)
        _, err = interrupt(process)
    try:
        assert process.returncode == 1, err
        details = report(output)["replica_details"]
        assert [detail["state"] for detail in details] == ["finished", "finished", "lost", "finished"]
        assert all(detail["operations"] > 0 for detail in details)
        assert report(output)["ended"] == "interrupted"
        assert "replica 2 LOST" in err
    finally:
        slurm.start_node("n3")
        wait_for(lambda: "n3" in ready_nodes())


def ready_nodes() -> str:
    words = ["sinfo", "--noheader", "--Node", "--format=%N %T"]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    return " ".join(line for line in lines if line.endswith(("idle", "allocated", "mixed")))


def test_jobs_of_their_own_may_wait_in_the_queue_while_others_work(slurm: LocalCluster, tmp_path: Path) -> None:
    blocker = subprocess.Popen(["srun", "--nodes=2", "--exclusive", "sleep", "600"])
    output, timeout = tmp_path / "run", "run.start_timeout=30s"  # on a busy machine none may be ready before
    try:
        wait_for(lambda: any("RUNNING" in line for line in queue()))
        with start(output, "--replicas", 3, "--duration", "30m", "--set", timeout) as process:
            wait_for(lambda: "run_released" in history(output))
            assert len([line for line in queue("--states=PENDING") if "aiperf" in line]) == 1
            blocker.terminate()  # srun passes it on to its task
            blocker.wait()
            wait_for(lambda: all_have_epochs(output, 3))
            _, err = interrupt(process)
    finally:
        blocker.terminate()
    assert process.returncode == 1, err
    (released,) = [record["ready"] for record in raw_records(output) if record["type"] == "run_released"]
    assert 1 <= len(released) <= 2, "two have nodes; a busy machine may have started only one of them"
    assert f"{3 - len(released)} of 3 replicas not ready within 30 s" in err
    assert all(detail["operations"] > 0 for detail in report(output)["replica_details"]), "the late one joined"
    wait_for(lambda: queue() == [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_cancelled_run_leaves_no_job_behind(slurm: LocalCluster, tmp_path: Path, number: signal.Signals) -> None:
    output = tmp_path / "run"
    with start(output, "--replicas", 2, "--duration", "10m", "--set", "replica.nodes=2") as process:
        wait_for_epochs(output)
        assert len(queue("--states=RUNNING")) == 2
        process.send_signal(number)
        process.communicate(timeout=240)
    wait_for(lambda: queue() == [])
    nothing_is_left(output, 60)
    assert aiperf("report", output).returncode == 0


def kill(output: Path, *programs: str) -> None:
    """Kill what runs for a replica of this run, on whatever node."""
    for member in processes_with(output):
        if ask(member.name, "") in programs and " aiperf " not in " ".join(words_of(member)):
            ask(member.kill, None)


def test_a_killed_primary_leaves_no_job_even_if_its_sallocs_die_with_it(slurm: LocalCluster, tmp_path: Path) -> None:
    output = tmp_path / "run"
    with start(output, "--replicas", 2, "--duration", "10m") as process:
        wait_for_epochs(output)
        process.send_signal(signal.SIGSTOP)  # it shall not react before its end
        kill(output, "salloc")
        process.kill()
        process.communicate(timeout=240)
    wait_for(lambda: queue() == [])
    nothing_is_left(output, 60)


def test_a_resumed_primary_cancels_the_jobs_that_nothing_works_in(slurm: LocalCluster, tmp_path: Path) -> None:
    output = tmp_path / "run"
    with start(output, "--replicas", 2, "--duration", "10m") as process:
        wait_for_epochs(output)
        mine = subprocess.Popen(["srun", "--nodes=1", "--exclusive", "--job-name=r0-aiperf-other-1", "sleep", "600"])
        wait_for(lambda: len(queue("--states=RUNNING")) == 3)
        kept = [line for line in queue() if "other" in line]
        process.send_signal(signal.SIGSTOP)
        kill(output, "salloc")  # first: it would give its job back when its srun ends
        kill(output, "python", "python3")  # before they see that they are alone
        process.kill()
        process.communicate(timeout=240)
    nothing_is_left(output, 60)
    left = {line.split()[0] for line in queue() if line not in kept}
    assert len(left) == 2, "SLURM keeps jobs whose salloc was killed"
    words = [sys.executable, "-m", "aiperf", "resume", str(output), "--no-page"]
    try:
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            wait_for(lambda: len({line.split()[0] for line in queue("--states=RUNNING")} - left) == 3)
            assert not left & {line.split()[0] for line in queue("--states=RUNNING")}
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=240)
        wait_for(lambda: queue() == kept)
    finally:
        mine.terminate()
        mine.wait()


def test_a_job_that_slurm_ends_is_named_in_slurms_words(slurm: LocalCluster, tmp_path: Path) -> None:
    output = tmp_path / "run"
    with start(output, "--replicas", 1, "--duration", "10m", "--set", "replica.restarts=0") as process:
        wait_for_epochs(output)
        job = queue("--states=RUNNING")[0].split()[0]
        subprocess.run(["scancel", job], check=True)
        process.communicate(timeout=240)
    assert process.returncode == 1
    (detail,) = report(output)["replica_details"]
    assert detail["state"] == "lost"
    assert f"SLURM job {job} is CANCELLED: it was cancelled" in detail["reason"]


def test_an_allocation_that_is_too_small_is_reported(allocation: str, tmp_path: Path) -> None:
    result = aiperf("run", *SIMULATED, *SLURM, "--replicas", 5, "--duration", "4s", "--output", tmp_path / "run")
    assert "too few nodes for replica 4: SLURM job" in report(tmp_path / "run")["replica_details"][4]["reason"]
    assert result.returncode == 0


def test_slurm_s_variables_in_the_environment_have_no_effect(slurm: LocalCluster, tmp_path: Path) -> None:
    confusing = {
        "SLURM_NTASKS": "9",
        "SLURM_NNODES": "7",
        "SALLOC_PARTITION": "none",
        "SBATCH_PARTITION": "none",
        "SLURM_PARTITION": "none",
    }
    result = aiperf("run", *SIMULATED, *SLURM, "--duration", "4s", "--output", tmp_path / "run", environment=confusing)
    assert result.returncode == 0, result.stderr


def test_nothing_listens_but_slurms_own_programs(allocation: str, tmp_path: Path) -> None:
    output = tmp_path / "run"
    with start(output, "--replicas", 2, "--duration", "30m") as process:
        wait_for_epochs(output)
        seen = own_processes(output)
        assert [listening(member) for member in seen] == [set()] * len(seen)
        assert len(seen) >= 3, "the primary and two agents"
        interrupt(process)


def test_what_is_left_of_an_allocation_is_known(slurm: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["salloc", "--no-shell", "--nodes=1", "--no-kill"]
    for option, longest_s in (("--time=30", 1800.0), ("--time=UNLIMITED", None)):
        shown = subprocess.run([*words, option], capture_output=True, text=True, check=True).stderr
        job = shown.split("allocation ")[1].split()[0]
        monkeypatch.setenv("SLURM_JOB_ID", job)
        monkeypatch.setenv("SLURM_JOB_NODELIST", "n1")
        found = time_left_s(os.environ)
        subprocess.run(["scancel", job], check=True)
        if longest_s is None:
            assert found is None
        else:
            assert found is not None
            assert found[0] == f"SLURM job {job}"
            assert 0 < found[1] <= longest_s
