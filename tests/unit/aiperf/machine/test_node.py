"""A node as it describes itself, and the part of it that a launcher has given to a replica."""

from pathlib import Path

import pytest

from aiperf.config.placement import CPUS_DIVIDED
from aiperf.host import Host
from aiperf.machine import node
from aiperf.machine.accelerators import node_accelerators


def test_the_gpus_of_a_node_are_those_of_its_driver(tmp_path: Path) -> None:
    assert node_accelerators(tmp_path) == 0
    devices = tmp_path / "dev"
    devices.mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (devices / name).touch()
    assert node_accelerators(tmp_path) == 2
    for address in ("0000:01:00.0", "0000:41:00.0", "0000:81:00.0"):
        (tmp_path / "proc/driver/nvidia/gpus" / address).mkdir(parents=True)
    assert node_accelerators(tmp_path) == 3, "also those whose device files a container hides"


@pytest.mark.parametrize(
    ("environment", "available", "together"),
    [
        ({}, 16, 16),
        ({}, 4, 4),
        ({CPUS_DIVIDED: "2"}, 8, 16),
        # SLURM grants 8 CPUs, but confines no process to them.
        ({CPUS_DIVIDED: "2", "SLURM_CPUS_ON_NODE": "8"}, 16, 16),
        ({CPUS_DIVIDED: "4", "SLURM_CPUS_ON_NODE": "1"}, 16, 4),
        # A node of which more CPUs are claimed than it has.
        ({CPUS_DIVIDED: "16", "SLURM_CPUS_ON_NODE": "4"}, 16, 16),
        ({"SLURM_CPUS_ON_NODE": "1"}, 16, 16),
    ],
)
def test_the_cpus_of_the_replicas_of_a_node(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], available: int, together: int
) -> None:
    monkeypatch.setattr(Host, "usable_cpus", lambda _: available)
    monkeypatch.setattr(Host, "online_cpus", lambda _: 16)
    assert node.shared_cpus(environment) == together


def test_a_description_names_the_node_as_slurm_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURMD_NODENAME", raising=False)
    facts = node.describe_node()
    assert "slurm_node" not in facts
    assert (facts["node_cpu_count"], facts["accelerators"]) == (Host().online_cpus(), facts["node_accelerators"])
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    assert node.describe_node()["slurm_node"] == "n7"
