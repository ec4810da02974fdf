"""One suite for every launcher. A new launcher is tested from the day it is registered."""

import asyncio
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from aiperf.clock import SystemClock
from aiperf.config.settings import RunConfig, load_config
from aiperf.errors import LaunchError, MessageError
from primary.launchers import LAUNCHERS, Exit, Launcher, ReplicaSpec, make_launcher
from primary.launchers.relays.remote_starters import REMOTE_STARTERS
from primary.nodes.ssh_client import CLIENTS
from tests.support.hosts.allocations import enter, job_of
from tests.support.hosts.ray_cluster import RayNodes
from tests.support.hosts.sshd import Hosts
from tests.support.processes import lives
from tests.support.runs import wait_for

ECHO = "import sys\nfor line in sys.stdin: print('got', line.strip(), flush=True)"
STUBBORN = (
    "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print(os.getpid(), flush=True)\ntime.sleep(600)"
)
PARENT = "import subprocess, sys, time\nprint(subprocess.Popen(['sleep', '600']).pid, flush=True)\ntime.sleep(600)"

Settings = dict[str, object]


def slurm_job(request: pytest.FixtureRequest) -> Settings:
    """Outside an allocation."""
    request.getfixturevalue("slurm")
    return {"replica.per_node": 16}


def slurm_step(request: pytest.FixtureRequest) -> Settings:
    """Inside an allocation."""
    request.getfixturevalue("allocation")
    return {"replica.per_node": 16}


def ssh(client: str, request: pytest.FixtureRequest) -> Settings:
    hosts: Hosts = request.getfixturevalue("ssh_hosts")
    settings = hosts.settings.model_dump() | {"client": client}
    return {"replica.per_node": 20} | {f"ssh.{name}": value for name, value in settings.items()}


def in_job(scheduler: str, request: pytest.FixtureRequest) -> Settings:
    """Inside a canned job of three hosts, with a stand-in for the starter."""
    folder: Path = request.getfixturevalue("tmp_path") / "job"
    enter(request.getfixturevalue("monkeypatch"), job_of(scheduler, folder, ("a", "b", "c")))
    return {"replica.per_node": 20}


def ray(request: pytest.FixtureRequest) -> Settings:
    nodes: RayNodes = request.getfixturevalue("ray_nodes")
    return {"replica.per_node": 25, **nodes.settings}


WAYS: dict[str, dict[str, Callable[[pytest.FixtureRequest], Settings]]] = {
    "local": {"local": lambda request: {}},
    "scheduler": {f"scheduler {name}": partial(in_job, name) for name in REMOTE_STARTERS},
    "slurm": {"slurm job": slurm_job, "slurm step": slurm_step},
    "ssh": {f"ssh {client}": partial(ssh, client) for client in CLIENTS},
    "ray": {"ray": ray},
}
"""The ways to set up each launcher, one or several."""


def config_for(launcher: str, way: str, request: pytest.FixtureRequest) -> RunConfig:
    if launcher not in WAYS:
        pytest.fail(f"launcher {launcher!r} is registered, but not set up in this suite: add it to WAYS")
    settings = WAYS[launcher][way](request)
    return load_config(overrides={"run.dataset": "digits", "run.launcher": launcher, **settings})


@pytest.fixture(
    params=[pytest.param((name, way), id=way) for name in LAUNCHERS for way in WAYS.get(name, {name: None})]
)
def start(request: pytest.FixtureRequest) -> Callable[[], Launcher]:
    launcher, way = request.param
    config = config_for(launcher, way, request)
    return lambda: make_launcher(config, SystemClock())


@pytest.fixture
def spec(tmp_path: Path) -> Callable[[str], ReplicaSpec]:
    def make(code: str, replica: int = 0, **environment: str) -> ReplicaSpec:
        return ReplicaSpec(replica, (sys.executable, "-c", code), tmp_path / f"r{replica}.log", environment)

    return make


Make = Callable[..., ReplicaSpec]
Start = Callable[[], Launcher]


def test_messages_go_both_ways_and_the_exit_code_comes_back(start: Start, spec: Make) -> None:
    async def scenario() -> None:
        launcher = start()
        process = await launcher.start(spec(ECHO))
        for text in (b"one\n", "zwei é 三\n".encode()):
            await process.send(text)
            assert await process.receive() == b"got " + text
        await process.cancel(5)
        ended = await launcher.start(spec("import sys; print('last'); sys.exit(7)"))
        assert (await ended.wait()).code == 7
        assert [await ended.receive() for _ in range(3)] == [b"last\n", b"", b""], "output outlives its process"
        await ended.send(b"too late\n")
        well = await launcher.start(spec("pass"))
        assert await well.wait() == Exit(0)

    asyncio.run(scenario())


def test_death_by_a_signal_is_reported_as_such(start: Start, spec: Make) -> None:
    async def scenario() -> None:
        process = await start().start(spec("import os; os.kill(os.getpid(), 9)"))
        assert await process.receive() == b""
        assert (await process.wait()).code == -signal.SIGKILL

    asyncio.run(scenario())


def test_cancel_ends_stubborn_processes_and_children(start: Start, spec: Make) -> None:
    async def scenario() -> None:
        launcher = start()
        stubborn = await launcher.start(spec(STUBBORN))
        pid = int(await stubborn.receive())
        await stubborn.cancel(0.2)
        end = await stubborn.cancel(0.2)  # cancelling twice does no harm
        assert await stubborn.wait() == end, "its end can be asked for afterwards"
        await assert_gone(pid)
        parent = await launcher.start(spec(PARENT))
        child = int(await parent.receive())
        await parent.cancel(5)
        await assert_gone(child)

    asyncio.run(scenario())


async def assert_gone(pid: int) -> None:
    await asyncio.to_thread(wait_for, lambda: not lives(pid))


def test_standard_error_is_kept_and_odd_characters_arrive(start: Start, tmp_path: Path) -> None:
    async def scenario() -> None:
        log = tmp_path / "odd $name 'é.log"
        code = "import os, sys; print(sys.argv[1], os.environ['ODD']); print('to the log', file=sys.stderr)"
        odd = """a "b" $c 'd' \\ é"""
        process = await start().start(ReplicaSpec(0, (sys.executable, "-c", code, odd), log, {"ODD": odd}))
        assert (await process.receive()).decode() == f"{odd} {odd}\n"
        await process.wait()
        assert "to the log\n" in log.read_text()

    asyncio.run(scenario())


def test_an_endless_line_is_an_error_and_not_all_the_memory(start: Start, spec: Make) -> None:
    async def scenario() -> None:
        process = await start().start(spec("print('x' * 3_000_000)"))
        with pytest.raises(MessageError, match="endless line"):
            await process.receive()
        await process.cancel(1)

    asyncio.run(scenario())


def test_a_program_that_does_not_exist_is_reported(start: Start, tmp_path: Path) -> None:
    async def scenario() -> None:
        log = tmp_path / "log"
        try:
            process = await start().start(ReplicaSpec(3, ("/no/such/program",), log))
        except LaunchError as error:
            assert "replica 3: /no/such/program: No such file" in str(error)
            return
        assert await process.receive() == b""
        assert (await process.wait()).code not in (0, None)
        assert "/no/such/program" in log.read_text()

    asyncio.run(scenario())


def test_fifty_at_once(start: Start, spec: Make, request: pytest.FixtureRequest) -> None:
    # Each connection of paramiko computes its keys in Python.
    count = 10 if "paramiko" in request.node.nodeid else 50

    async def one(launcher: Launcher, replica: int) -> bytes:
        process = await launcher.start(ReplicaSpec(replica, ("cat",), spec("", replica).log))
        await process.send(b"%d\n" % replica)
        answer = await process.receive()
        await process.cancel(5)
        return answer

    async def scenario() -> None:
        launcher = start()
        answers = await asyncio.gather(*(one(launcher, replica) for replica in range(count)))
        assert answers == [b"%d\n" % replica for replica in range(count)]

    asyncio.run(scenario())


@pytest.mark.parametrize("way", WAYS["ssh"])
def test_a_lost_connection_is_not_a_death(
    way: str, ssh_hosts: Hosts, spec: Make, request: pytest.FixtureRequest
) -> None:
    config = config_for("ssh", way, request)

    async def scenario() -> None:
        process = await make_launcher(config, SystemClock()).start(
            spec("import os, time; print(os.getpid()); time.sleep(600)")
        )
        ssh_hosts.drop_connections("h0")
        await process.receive()
        found = await process.wait()
        assert found.code is None
        assert str(found) == "cannot be reached: the connection is lost"
        assert await process.explain() == "host h0"
        assert [await process.cancel(0.2), await process.wait()] == [found, found]

    asyncio.run(scenario())
