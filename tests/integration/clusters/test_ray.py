"""Runs over a real Ray cluster: nodes and actors that die, clusters too small or absent."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiperf.clock import SystemClock
from aiperf.config.settings import load_config
from aiperf.errors import LaunchError, UsageError
from primary.launchers import Exit, Launcher, ReplicaSpec, make_launcher
from tests.support.hand_made import free_port
from tests.support.hosts.ray_cluster import RayNodes
from tests.support.processes import all_end, family, lives, processes_with
from tests.support.runs import (
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

STUBBORN = (
    "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print(os.getpid(), flush=True)\ntime.sleep(600)"
)


@pytest.fixture
def failing(ray_nodes: RayNodes) -> Iterator[RayNodes]:
    """The cluster for a test in which a node dies; another one takes its place afterwards."""
    yield ray_nodes
    ray_nodes.add()


def launcher(**settings: object) -> Launcher:
    made = {"run.dataset": "digits", "run.launcher": "ray", **settings}
    return make_launcher(load_config(overrides=made), SystemClock())


def test_a_node_that_dies_costs_its_replica_and_not_the_run(failing: RayNodes, tmp_path: Path) -> None:
    output = tmp_path / "odd name é"
    address = str(failing.settings["ray.address"])
    others = [f"--set={name}={value}" for name, value in failing.settings.items() if name != "ray.address"]
    words = ("--launcher", "ray", "--address", address, *others, "--replicas", 2, "--duration", "30m")
    with begin(output, *words, "--set", "replica.restarts=0") as process:
        wait_for(lambda: all(agents(output, replica) for replica in (0, 1)))
        wait_for_epochs(output, 5)
        on_nodes = [member for agent in agents(output) for member in family(agent)]
        died = failing.fail()
        wait_for(lambda: '"type":"replica_lost"' in history(output))
        wait_for_another_epoch(output)
        out, err = interrupt(process)
    assert process.returncode == 1, err
    found = report(output)
    assert found["ended"] == "interrupted"
    details = sorted(found["replica_details"], key=lambda detail: str(detail["state"]))
    assert [detail["state"] for detail in details] == ["finished", "lost"]
    assert all(detail["operations"] > 0 for detail in details)
    assert f"cannot be reached: the connection is lost; Ray node {os.uname().nodename}" in details[1]["reason"]
    assert f"(id {died[:8]})" in details[1]["reason"]
    assert all_end(on_nodes)
    nothing_is_left(output, 60)
    assert "worker.py" not in out + err, "Ray's own output is not the run's"


def test_a_killed_actor_takes_even_stubborn_processes_with_it(ray_nodes: RayNodes, tmp_path: Path) -> None:
    async def scenario() -> None:
        made = launcher(**ray_nodes.settings)
        # Actors of the test before may take a moment to end.
        before = {other.pid for other in processes_with("ray::NodeActor")}
        process = await made.start(ReplicaSpec(0, (sys.executable, "-c", STUBBORN), tmp_path / "r0.log"))
        stubborn = int(await process.receive())
        (actor,) = (found for found in processes_with("ray::NodeActor") if found.pid not in before)
        actor.send_signal(signal.SIGKILL)
        assert await process.receive() == b""
        assert [await process.wait(), await process.cancel(0.2), await process.wait()] == [Exit(None)] * 3
        await process.send(b"too late\n")
        await asyncio.to_thread(wait_for, lambda: not lives(stubborn), 30)
        again = await made.start(ReplicaSpec(0, ("cat",), tmp_path / "r0.log"))
        await again.send(b"again\n")
        assert await again.receive() == b"again\n"

    asyncio.run(scenario())


def test_replicas_share_a_node_and_too_few_nodes_are_reported(ray_nodes: RayNodes, tmp_path: Path) -> None:
    def spec(replica: int) -> ReplicaSpec:
        return ReplicaSpec(replica, ("cat",), tmp_path / f"r{replica}.log")

    async def scenario() -> None:
        made = launcher(**ray_nodes.settings, **{"run.replicas": 4, "replica.per_node": 2})
        started = await asyncio.gather(*(made.start(spec(replica)) for replica in (0, 1, 2)))
        nodes = [await process.explain() for process in started]
        assert nodes[0] == nodes[1] != nodes[2]
        impatient = launcher(**{**ray_nodes.settings, "ray.wait": 1.0, "run.replicas": 3})
        with pytest.raises(LaunchError, match=r"no node for replica 2: .* has 2 usable .* 3 are needed; add nodes"):
            await impatient.start(spec(2))
        with pytest.raises(LaunchError, match=r"no free node for replica 0 .*: other work holds CPUs .* `ray status`"):
            await impatient.start(spec(0))

    asyncio.run(scenario())


def test_no_cluster_is_reported_with_the_commands_that_start_one(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(LaunchError, match=f"cannot connect to the Ray cluster .*{address}.* refused; .*ray start"):
        asyncio.run(launcher(**{"ray.address": address}).start(ReplicaSpec(0, ("cat",), tmp_path / "log")))


def test_what_ray_cannot_do_is_an_error_of_usage() -> None:
    with pytest.raises(UsageError, match="use --launcher slurm or ssh"):
        launcher(**{"replica.nodes": 2})
    for address in ("local", "ray://head:10001"):
        with pytest.raises(UsageError, match="'auto' or HOST:PORT is allowed"):
            launcher(**{"ray.address": address})
