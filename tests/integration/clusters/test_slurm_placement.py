"""What a replica gets of its node, on a SLURM cluster that confines jobs to what they ask for."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aiperf.clock import SystemClock
from aiperf.config.settings import load_config
from aiperf.errors import UsageError
from aiperf.host import this_host
from aiperf.run_directory.checksums import without_seal
from aiperf.run_directory.paths import PRIMARY_NODE
from primary.launchers import ReplicaSpec, make_launcher
from slurm.local_cluster import LocalCluster
from tests.support.hand_made import SIMULATED, aiperf
from tests.support.needs import need
from tests.support.runs import AT_RANDOM, wait_for

NODES, GPUS = 2, 2
CPUS = this_host().online_cpus()

WHERE = """
import json, os, sys
found = {"node": os.environ["SLURMD_NODENAME"], "cpus": sorted(os.sched_getaffinity(0)),
         "gpus": os.environ.get("CUDA_VISIBLE_DEVICES")}
print(json.dumps(found), flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(
    not 2 <= CPUS == len(os.sched_getaffinity(0)),
    reason="SLURM gives out all CPUs of the machine: it cannot confine to less than one, nor may tests have only some",
)


@pytest.fixture(scope="module")
def confining(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster of two nodes, which bind steps to the CPUs of this machine and claim two GPUs."""
    need("slurmctld", "slurmd", "munged", "srun")
    cluster = LocalCluster(tmp_path_factory.mktemp("confining") / "cluster", SystemClock())
    cluster.start(NODES, None, GPUS)
    yield cluster
    cluster.stop()


@pytest.fixture(autouse=True)
def commands(confining: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """SLURM's commands talk to this cluster."""
    for name, value in confining.environment.items():
        monkeypatch.setenv(name, value)


def places(folder: Path, settings: dict[str, object]) -> list[dict[str, Any]]:
    """The nodes, CPUs and GPUs of two replicas at the same time."""
    config = load_config(overrides={"run.dataset": "digits", "run.launcher": "slurm", **settings})

    async def scenario() -> list[dict[str, Any]]:
        launcher = make_launcher(config, SystemClock())
        command = (sys.executable, "-c", WHERE)
        started = [
            await launcher.start(ReplicaSpec(replica, command, folder / f"{replica}.log")) for replica in range(2)
        ]
        found = [json.loads(await process.receive()) for process in started]
        await asyncio.gather(*(process.cancel(5) for process in started))
        return found

    found = asyncio.run(scenario())
    wait_for(lambda: not subprocess.run(["squeue", "--noheader", "--steps"], capture_output=True, check=True).stdout)
    return found


@pytest.fixture(params=["jobs of their own", "steps of an allocation"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Outside an allocation, and inside one as `aiperf slurm script` asks for."""
    if request.param == "jobs of their own":
        yield request.param
        return
    options = [f"--nodes={NODES}", "--exclusive", "--mem=0", f"--gpus-per-node={GPUS}"]
    shown = subprocess.run(["salloc", "--no-shell", *options], capture_output=True, text=True, check=True).stderr
    job = shown.split("allocation ")[1].split()[0]
    monkeypatch.setenv("SLURM_JOB_ID", job)
    monkeypatch.setenv("SLURM_JOB_NODELIST", f"n[1-{NODES}]")
    monkeypatch.setenv("SLURM_JOB_CPUS_PER_NODE", f"{CPUS}(x{NODES})")
    yield request.param
    subprocess.run(["scancel", job], check=True)


def test_a_replica_gets_a_whole_node(way: str, tmp_path: Path) -> None:
    found = places(tmp_path, {"slurm.gpus_per_node": GPUS})
    assert {place["node"] for place in found} == {"n1", "n2"}
    assert [len(place["cpus"]) for place in found] == [CPUS] * 2, "all that are online"
    assert [place["gpus"] for place in found] == ["0,1"] * 2


def test_replicas_that_share_a_node_divide_it(way: str, tmp_path: Path) -> None:
    first, second = places(tmp_path, {"replica.per_node": 2, "slurm.gpus_per_node": GPUS})
    assert first["node"] == second["node"]
    assert len(first["cpus"]) == len(second["cpus"]) == CPUS // 2
    assert not {*first["cpus"]} & {*second["cpus"]}
    assert {first["gpus"], second["gpus"]} == {"0", "1"}


def test_the_replicas_of_a_shared_node_know_their_parts(tmp_path: Path) -> None:
    output = tmp_path / "run"
    words = ("--launcher", "slurm", "--replicas", 2, "--duration", "2s", *AT_RANDOM, "--set", "replica.per_node=2")
    result = aiperf("run", *SIMULATED, *words, "--output", output)
    assert result.returncode == 0, result.stderr
    assert "WARNING" not in result.stderr
    nodes = without_seal(json.loads((output / "system.json").read_text()))
    assert "cpu_model" in nodes.pop(PRIMARY_NODE)
    assert [(facts["slurm_node"], facts["cpu_count"]) for facts in nodes.values()] == [("n1", CPUS // 2 * 2)] * 2


@pytest.fixture
def one_core(confining: LocalCluster) -> int:
    """The CPUs of a core, of which SLURM gives all or none."""
    found = re.search(r"ThreadsPerCore=(\d+)", confining.configuration.read_text())
    threads = int(found[1]) if found else 1
    if threads == CPUS:
        pytest.skip("a machine with one core cannot confine to less")
    return threads


def test_a_replica_confined_to_one_core_is_named_loudly(one_core: int, tmp_path: Path) -> None:
    output = tmp_path / "run"
    settings = ("slurm.exclusive=false", "slurm.memory_per_node=100M", 'slurm.options=["--nodelist=n1"]')
    words = ("--launcher", "slurm", "--replicas", 2, "--duration", "2s", *AT_RANDOM)
    chosen = (f"--set={each}" for each in settings)
    result = aiperf("run", *SIMULATED, *words, *chosen, "--output", output)
    assert result.returncode == 0, result.stderr
    crowded = "replicas 0 and 1 share node n1, but replica.per_node is 1"
    confined = f"replicas 0 and 1 can use only {one_core} of the {CPUS} CPUs of node n1"
    warnings = [line for line in result.stderr.splitlines() if line.startswith("WARNING: ")]
    assert [crowded in line or confined in line for line in warnings] == [True, True], result.stderr
    nodes = without_seal(json.loads((output / "system.json").read_text()))
    assert "warning" not in nodes.pop(PRIMARY_NODE)
    for facts in nodes.values():
        assert crowded in facts["warning"]
        assert confined in facts["warning"]


def test_the_doctor_examines_the_nodes_of_a_job(way: str, tmp_path: Path) -> None:
    words = ("--launcher", "slurm", "--replicas", 2, "--set", f"slurm.gpus_per_node={GPUS}")
    (nodes,), (placement,) = diagnosed(tmp_path, words, "nodes", "placement")
    assert (nodes["status"], placement["status"]) == ("ok", "ok")
    assert nodes["found"].startswith(f"replicas 0-1: {CPUS} CPUs")


def test_the_doctor_names_a_confined_replica(one_core: int, tmp_path: Path) -> None:
    words = ("--launcher", "slurm", "--set", "slurm.exclusive=false", "--set", "slurm.memory_per_node=100M")
    ((placement,),) = diagnosed(tmp_path, words, "placement")
    assert placement["status"] == "warning"
    assert f"replica 0 can use only {one_core} of the {CPUS} CPUs of node n" in placement["found"]
    assert "leave slurm.exclusive out" in placement["remedy"]


def diagnosed(folder: Path, words: tuple[str | int, ...], *checks: str) -> list[list[dict[str, str]]]:
    """The findings of some checks."""
    result = aiperf("doctor", *SIMULATED, *words, "--output", folder / "run", "--format", "json")
    assert result.returncode == 0, result.stdout
    assert list(folder.iterdir()) == []
    findings = json.loads(result.stdout)
    return [[finding for finding in findings if finding["check"] == check] for check in checks]


def test_jobs_that_cannot_work_are_refused_before_they_are_submitted() -> None:
    settings: dict[str, object] = {"replica.per_node": 3, "slurm.gpus_per_node": 2}
    with pytest.raises(UsageError, match=r"slurm\.gpus_per_node: 2 cannot be divided among jobs of 3 replicas"):
        make_launcher(load_config(overrides={"run.launcher": "slurm", **settings}), SystemClock())
    with pytest.raises(UsageError, match=r"slurm\.time: 12:00:00 is too short"):
        make_launcher(load_config(overrides={"run.launcher": "slurm", "slurm.time": "12:00:00"}), SystemClock())
    with pytest.raises(UsageError, match=r"sinfo.*slurm\.partition"):
        make_launcher(
            load_config(overrides={"run.launcher": "slurm", "replica.per_node": 2, "slurm.partition": "none"}),
            SystemClock(),
        )
