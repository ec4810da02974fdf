"""SLURM's command lines, job scripts, states and configuration files as pure functions."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from aiperf.config.placement import nodes_needed
from aiperf.config.sections import SlurmSection
from aiperf.config.settings import load_config
from aiperf.errors import UsageError
from slurm.commands import clean_environment, job_of_its_own, resource_options, step_in_allocation
from slurm.configure import gres_conf, read_inventory, slurm_conf
from slurm.script import ScriptRequest, job_script
from slurm.states import job_in_words, node_in_words, parse_jobs


def test_only_the_command_line_tells_slurm_what_to_do() -> None:
    found = clean_environment({"PATH": "/bin", "SLURM_CONF": "x", "SLURM_NTASKS": "9", "SBATCH_ACCOUNT": "a",
                               "SALLOC_QOS": "q", "OMPI_COMM_WORLD_RANK": "1"})  # fmt: skip
    assert found == {"PATH": "/bin", "SLURM_CONF": "x"}


def test_a_step_runs_on_the_first_node_and_knows_the_others() -> None:
    words = step_in_allocation("17", "name", ("n1", "n2"), ("python", "-m", "replica"))
    assert words[:3] == ["srun", "--jobid=17", "--nodelist=n1"]
    assert words[-5:] == ["python", "-m", "replica", "--hosts", "n1,n2"]
    assert "--hosts" not in step_in_allocation("17", "name", ("n1",), ("python",))


def test_a_job_of_its_own_asks_for_what_is_configured() -> None:
    settings = SlurmSection(partition="gpu", account="a", time="60", gpus_per_node=4, options=("--mail-type=END",))
    words = job_of_its_own(settings, "name", 2, ("python",))
    assert words[:3] == ["salloc", "--job-name=name", "--nodes=2"]
    asked = words[3 : words.index("srun")]
    assert asked == ["--partition=gpu", "--account=a", "--time=60", "--gpus-per-node=4", "--no-kill", "--mail-type=END"]
    assert resource_options(SlurmSection()) == ["--no-kill"]


@pytest.mark.parametrize(
    ("overrides", "nodes"),
    [({}, 6), ({"replica.nodes": 2}, 12), ({"replica.per_node": 4}, 2), ({"replica.per_node": 6}, 1)],
)
def test_nodes_of_all_replicas(overrides: dict[str, Any], nodes: int) -> None:
    assert nodes_needed(load_config(overrides={"run.replicas": 6, **overrides})) == nodes


def test_a_job_script_is_shell_whatever_the_names(tmp_path: Any) -> None:
    config = load_config(overrides={"run.name": "odd 'name' $x", "slurm.partition": "gpu",
                                    "environment.activate": "true"})  # fmt: skip
    text = job_script(ScriptRequest(config, ("--output", "/a b/$c"), "/usr/bin/python3", "log-%j"))
    assert "#SBATCH --job-name=aiperf-odd--name---x\n" in text
    assert "#SBATCH --partition=gpu\n" in text
    assert "\ntrue\n" in text
    assert "run --output '/a b/$c' --launcher slurm &" in text
    script = tmp_path / "job.sh"
    script.write_text(text)
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0


def test_times_of_toml_are_times_of_slurm() -> None:
    assert load_config(overrides={"slurm.time": "1-12"}).slurm.time == "1-12"
    assert load_config(overrides={"slurm.time": 90}).slurm.time == "90"


def test_states_in_words() -> None:
    jobs = parse_jobs("12|aiperf-x|PREEMPTED|None\nnoise\n")
    assert job_in_words(jobs) == "SLURM job 12 is PREEMPTED: it was preempted by another job"
    assert "NODE_FAIL: a node failed, reason NodeDown" in job_in_words(parse_jobs("1|a|NODE_FAIL|NodeDown"))
    assert job_in_words(parse_jobs("1|a|COMPLETED|None")) == ""
    assert job_in_words(()) == ""
    assert node_in_words("n3", "down*") == "SLURM node n3 is DOWN*: a node failed"
    assert node_in_words("n3", "mixed") == ""


def facts(host: str, gpus: int) -> dict[str, Any]:
    return {
        "host": f"{host}.example.org", "address": f"10.0.0.{host[-1]}", "sockets": 2, "cores_per_socket": 32,
        "threads_per_core": 2, "memory_bytes": 512 << 30,
        "accelerators": [{"name": "NVIDIA H200 SXM", "memory_bytes": 1, "driver": "1"}] * gpus,
    }  # fmt: skip


def test_an_inventory_becomes_the_configuration_of_a_cluster() -> None:
    document = {"nodes": {"a": facts("gpu1", 2), "b": facts("gpu2", 2), "c": facts("cpu3", 0)}}
    nodes = read_inventory(document)
    text = slurm_conf(nodes, "test", "head")
    assert (
        "NodeName=gpu1,gpu2 NodeAddr=10.0.0.1,10.0.0.2 Sockets=2 CoresPerSocket=32 ThreadsPerCore=2 RealMemory=498073 "
        "Gres=gpu:h200_sxm:2 State=UNKNOWN"
    ) in text
    assert (
        "NodeName=cpu3 NodeAddr=10.0.0.3 Sockets=2 CoresPerSocket=32 ThreadsPerCore=2 RealMemory=498073 State" in text
    )
    assert "GresTypes=gpu" in text
    assert gres_conf(nodes).splitlines()[1:] == [
        "NodeName=gpu1,gpu2 Name=gpu Type=h200_sxm File=/dev/nvidia0,/dev/nvidia1"
    ]
    assert gres_conf(read_inventory({"nodes": {"c": facts("cpu3", 0)}})) == ""


def test_what_an_inventory_lacks_is_named() -> None:
    broken = facts("gpu1", 0)
    del broken["sockets"]
    with pytest.raises(UsageError, match=r"node a: KeyError\('sockets'\)"):
        read_inventory({"nodes": {"a": broken}})
    with pytest.raises(UsageError, match="names no node that could be reached"):
        read_inventory({"nodes": {}, "failures": {"a": "gone"}})
