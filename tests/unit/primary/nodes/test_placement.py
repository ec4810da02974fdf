"""Warnings about replicas that do not get the nodes that are meant for them."""

import asyncio
from typing import Any

import pytest

from aiperf.config.settings import load_config
from analysis.reading.nodes import read_primary_node, read_system
from primary.context import SystemFile
from primary.nodes.placement import Facts, PlacementCheck
from tests.support.hand_made import HandMadeRun


def check(per_node: int = 1, launcher: str = "slurm", **settings: Any) -> PlacementCheck:
    overrides = {f"slurm.{key}": value for key, value in settings.items()}
    return PlacementCheck(load_config(overrides={"run.launcher": launcher, **overrides}), per_node)


def node(host: str, cpus: int = 128, gpus: int = 8, **further: str) -> Facts:
    """A node of 128 CPUs and 8 GPUs, and what replicas see of it."""
    return {
        "host": host,
        "cpu_count": cpus,
        "node_cpu_count": 128,
        "accelerators": gpus,
        "node_accelerators": 8,
        **further,
    }


@pytest.mark.parametrize(
    ("launcher", "per_node", "nodes"),
    [
        ("slurm", 1, {0: node("a"), 1: node("b")}),
        ("slurm", 2, {0: node("a"), 1: node("a"), 2: node("b")}),
        ("local", 3, {0: node("a"), 1: node("a"), 2: node("a")}),
        # As in a test cluster: one machine, several nodes of SLURM.
        ("slurm", 1, {0: node("a", slurm_node="n1"), 1: node("a", slurm_node="n2")}),
        # Cores that the site keeps for its system.
        ("slurm", 1, {0: node("a", cpus=112)}),
        # A node that could not find out.
        ("ssh", 1, {0: {"host": "a", "cpu_count": 1, "accelerators": 0}, 1: {"host": None}, 2: {}}),
    ],
)
def test_replicas_that_get_what_is_meant_for_them(launcher: str, per_node: int, nodes: dict[int, Facts]) -> None:
    assert check(per_node, launcher).look(nodes) == {}


def test_replicas_that_share_a_node_by_accident_are_named() -> None:
    nodes = {0: node("a"), 1: node("b"), 2: node("a")}
    ((text, replicas),) = check().look(nodes).items()
    assert text.startswith("replicas 0 and 2 share node a, but replica.per_node is 1: each gets a part")
    assert text.endswith("leave slurm.exclusive out, or set replica.per_node=2")
    assert replicas == (0, 2)
    (text,) = check(launcher="ssh").look(nodes)
    assert text.endswith("name more hosts, or set replica.per_node=2")


def test_confined_replicas_are_named_once_and_together() -> None:
    placement = check()
    nodes = {number: node(f"n{number}", cpus=1) for number in range(10)}
    ((text, replicas),) = placement.look(nodes).items()
    assert text.startswith(
        "replicas 0, 1, 2, 3, 4, 5, 6, 7 and 2 more can use only 1 of the 128 CPUs of each of the nodes "
        "n0, n1, n2, n3, n4, n5, n6, n7 and 2 more; ask for whole nodes"
    )
    assert replicas == tuple(range(10))
    assert placement.look(nodes) == {}
    (text,) = placement.look({**nodes, 10: node("late", cpus=64)})
    assert text.startswith("replica 10 can use only 64 of the 128 CPUs of node late; ")


def test_cpus_that_were_not_asked_for_are_not_missed() -> None:
    assert check(cpus_per_node=32).look({0: node("a", cpus=32)}) == {}
    assert list(check(cpus_per_node=32).look({0: node("a", cpus=1)}))


def test_gpus_that_a_replica_does_not_see_are_named_with_the_remedy() -> None:
    (text,) = check().look({0: node("a", gpus=0)})
    assert text == (
        "replica 0 can use only 0 of the 8 GPUs of node a; set slurm.gpus_per_node=8, or correct CUDA_VISIBLE_DEVICES "
        "or the driver (nvidia-smi)"
    )
    (text,) = check(launcher="local").look({0: node("a", gpus=7)})
    assert "slurm" not in text


def test_warnings_are_kept_with_the_nodes(tmp_path: Any) -> None:
    run = HandMadeRun(tmp_path)
    system = SystemFile(run.paths.system)
    system.add(0, dict(node("a", cpus=1, gpus=0)))
    system.add(1, dict(node("b")))
    found = system.check(check(), (0, 1, 2))
    assert len(found) == 2
    system.try_to_write()
    assert run.paths.system.read_text().count('"warning": ') == 1
    assert "; replica 0 can use only 0 of the 8 GPUs" in run.paths.system.read_text()


def test_a_resumed_run_knows_the_nodes_that_do_not_come_back(tmp_path: Any) -> None:
    run = HandMadeRun(tmp_path)
    first = SystemFile(run.paths.system, dict(node("old")))
    for replica, name in enumerate("abc"):
        first.add(replica, dict(node(name)))
    first.try_to_write()
    second = SystemFile(run.paths.system, dict(node("new")))
    second.add(1, dict(node("d")))
    second.try_to_write()
    found = {name: facts.host for name, facts in read_system(run.paths).items()}
    assert found == {"0": "a", "1": "d", "2": "c"}
    primary = read_primary_node(run.paths)
    assert primary is not None and primary.host == "new"
    run.paths.system.write_bytes(b"{ torn")
    SystemFile(run.paths.system, dict(node("new"))).try_to_write()


def test_nodes_do_not_change_after_the_end(tmp_path: Any) -> None:
    run = HandMadeRun(tmp_path)
    system = SystemFile(run.paths.system)
    system.add(0, dict(node("a")))
    system.close()
    closed = run.paths.system.read_bytes()
    assert b'"a"' in closed
    system.add(1, dict(node("b")))
    asyncio.run(system.keep(run.clock))
    system.try_to_write()
    assert run.paths.system.read_bytes() == closed
