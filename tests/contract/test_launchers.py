"""One suite for every launcher. A new launcher is tested from the day it is registered."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from aiperf.errors import LaunchError, MessageError
from primary.launchers import LAUNCHERS, Launcher, ReplicaSpec

ECHO = "import sys\nfor line in sys.stdin: print('got', line.strip(), flush=True)"
STUBBORN = (
    "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(600)"
)
PARENT = "import subprocess, sys, time\nprint(subprocess.Popen(['sleep', '600']).pid, flush=True)\ntime.sleep(600)"


@pytest.fixture(params=sorted(LAUNCHERS))
def launcher(request: pytest.FixtureRequest) -> Launcher:
    return LAUNCHERS[request.param]()


@pytest.fixture
def spec(tmp_path: Path) -> Callable[[str], ReplicaSpec]:
    def make(code: str, replica: int = 0, **environment: str) -> ReplicaSpec:
        return ReplicaSpec(replica, (sys.executable, "-c", code), tmp_path / f"r{replica}.log", environment)

    return make


Make = Callable[..., ReplicaSpec]


def test_messages_go_both_ways_and_the_exit_code_comes_back(launcher: Launcher, spec: Make) -> None:
    async def scenario() -> None:
        process = await launcher.start(spec(ECHO))
        for text in (b"one\n", "zwei é 三\n".encode()):
            await process.send(text)
            assert await process.receive() == b"got " + text
        assert await process.cancel(5) == -signal.SIGTERM
        ended = await launcher.start(spec("import sys; print('last'); sys.exit(7)"))
        assert await ended.wait() == 7
        assert [await ended.receive() for _ in range(3)] == [b"last\n", b"", b""], "output outlives its process"
        await ended.send(b"too late\n")

    asyncio.run(scenario())


def test_death_by_a_signal_is_told_as_such(launcher: Launcher, spec: Make) -> None:
    async def scenario() -> None:
        process = await launcher.start(spec("import os; os.kill(os.getpid(), 9)"))
        assert await process.receive() == b""
        assert await process.wait() == -signal.SIGKILL

    asyncio.run(scenario())


def test_cancel_ends_stubborn_processes_and_children(launcher: Launcher, spec: Make) -> None:
    async def scenario() -> None:
        stubborn = await launcher.start(spec(STUBBORN))
        assert await stubborn.receive() == b"ready\n"
        assert await stubborn.cancel(0.2) == -signal.SIGKILL
        assert await stubborn.cancel(0.2) == -signal.SIGKILL, "cancelling twice does no harm"
        parent = await launcher.start(spec(PARENT))
        child = int(await parent.receive())
        await parent.cancel(5)
        for _ in range(100):
            if not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE:
                break
            await asyncio.sleep(0.05)
        else:
            pytest.fail(f"child {child} lives on")

    asyncio.run(scenario())


def test_standard_error_is_kept_and_odd_characters_arrive(launcher: Launcher, tmp_path: Path) -> None:
    async def scenario() -> None:
        log = tmp_path / "odd $name 'é.log"
        code = "import os, sys; print(sys.argv[1], os.environ['ODD']); print('to the log', file=sys.stderr)"
        odd = """a "b" $c 'd' \\ é"""
        process = await launcher.start(ReplicaSpec(0, (sys.executable, "-c", code, odd), log, {"ODD": odd}))
        assert (await process.receive()).decode() == f"{odd} {odd}\n"
        await process.wait()
        assert log.read_text() == "to the log\n"

    asyncio.run(scenario())


def test_an_endless_line_is_an_error_and_not_all_the_memory(launcher: Launcher, spec: Make) -> None:
    async def scenario() -> None:
        process = await launcher.start(spec("print('x' * 3_000_000)"))
        with pytest.raises(MessageError, match="endless line"):
            await process.receive()
        await process.cancel(1)

    asyncio.run(scenario())


def test_a_program_that_does_not_exist_is_a_launch_error(launcher: Launcher, tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(LaunchError, match=r"replica 3: /no/such/program: No such file"):
            await launcher.start(ReplicaSpec(3, ("/no/such/program",), tmp_path / "log"))

    asyncio.run(scenario())


def test_fifty_at_once(launcher: Launcher, spec: Make) -> None:
    async def one(replica: int) -> bytes:
        process = await launcher.start(ReplicaSpec(replica, ("cat",), spec("", replica).log))
        await process.send(b"%d\n" % replica)
        answer = await process.receive()
        await process.cancel(5)
        return answer

    async def scenario() -> None:
        answers = await asyncio.gather(*(one(replica) for replica in range(50)))
        assert answers == [b"%d\n" % replica for replica in range(50)]

    asyncio.run(scenario())
