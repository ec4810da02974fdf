"""`aiperf screen` over a real SLURM and a real Ray cluster, with devices whose rates are known."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from slurm.local_cluster import LocalCluster
from tests.support.hand_made import aiperf
from tests.support.hosts.ray_cluster import RayNodes
from tests.support.nodes.imitated import SLOW_SHARE, imitate_devices

LIMIT_S = 300
DIGITS = ("--dataset", "digits")


@pytest.mark.timeout(LIMIT_S + 60)
def test_the_slow_node_of_an_allocation_is_named_and_its_drain_command_works(allocation: str, tmp_path: Path) -> None:
    words = imitate_devices(tmp_path / "python", slow="n3")
    result = aiperf(
        "screen",
        *words,
        *DIGITS,
        "--launcher",
        "slurm",
        "--replicas",
        4,
        "--output",
        tmp_path / "screened",
        timeout_s=LIMIT_S,
    )
    assert result.returncode == 4, result.stderr
    assert (tmp_path / "screened" / "bad-nodes.txt").read_text() == "n3\n"
    assert "1 of 4 nodes are bad (3 pass(es)): n3" in result.stdout
    assert "--exclude n3" in result.stdout
    assert f"({SLOW_SHARE:.0%})" in result.stdout
    steps = ["squeue", "--noheader", "--steps", f"--jobs={allocation}"]
    assert subprocess.run(steps, capture_output=True, check=True).stdout == b""
    (command,) = [shlex.split(line) for line in result.stdout.splitlines() if "scontrol update" in line]
    try:
        subprocess.run(command, check=True)
        shown = subprocess.run(["scontrol", "show", "node", "n3"], capture_output=True, text=True, check=True).stdout
        assert "DRAIN" in shown
        assert "aiperf screen: cpu: " in shown
    finally:
        subprocess.run(["scontrol", "update", "nodename=n3", "state=resume"], check=True)


@pytest.mark.timeout(LIMIT_S + 60)
def test_nodes_are_screened_as_jobs_of_their_own(slurm: LocalCluster, tmp_path: Path) -> None:
    words = imitate_devices(tmp_path / "python")
    result = aiperf(
        "screen", *words, *DIGITS, "--launcher", "slurm", "--replicas", 3, "--format", "json", timeout_s=LIMIT_S
    )
    assert result.returncode == 0, result.stderr
    nodes = json.loads(result.stdout)["nodes"]
    assert len({node["known_as"] for node in nodes}) == 3
    assert [len(node["sheets"]) for node in nodes] == [1, 1, 1]


@pytest.mark.timeout(LIMIT_S + 60)
def test_the_nodes_of_a_ray_cluster_are_screened(ray_nodes: RayNodes, tmp_path: Path) -> None:
    settings = [f"--set={name}={value}" for name, value in ray_nodes.settings.items()]
    result = aiperf(
        "screen",
        *imitate_devices(tmp_path / "python"),
        *DIGITS,
        *settings,
        "--launcher",
        "ray",
        "--replicas",
        2,
        "--format",
        "json",
        timeout_s=LIMIT_S,
    )
    assert result.returncode == 0, result.stderr
    assert [len(node["sheets"][0]["rows"]) for node in json.loads(result.stdout)["nodes"]] == [2, 2]
