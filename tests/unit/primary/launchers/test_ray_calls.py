"""Calls to another process: results, refusals, and a process that ends."""

import asyncio
import gc
import sys
from pathlib import Path

import pytest

from aiperf.errors import LaunchError
from aiperf.run_directory.paths import belongs
from primary.launchers.ray.calls import Callee
from primary.launchers.ray.launcher import LOG
from tests.support.processes import lives
from tests.support.runs import wait_for

SERVER = """
import asyncio, os
from aiperf.errors import LaunchError
from primary.launchers.ray.calls import serve

async def double(data): return data + data
async def refuse(): raise LaunchError("not today", restart=True)
async def lose(): raise ConnectionError("node 7")
async def fail(): raise KeyError("x")
async def end(): os._exit(3)
async def number(): return os.getpid()
async def never(): await asyncio.Event().wait()

asyncio.run(serve(1, {call.__name__: call for call in (double, refuse, lose, fail, end, number, never)}))
"""


@pytest.fixture
def server(tmp_path: Path) -> Callee:
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    return Callee((sys.executable, str(file)), tmp_path / "log")


def test_bytes_arrive_and_errors_are_what_they_were(server: Callee) -> None:
    async def scenario() -> None:
        odd = bytes(range(256)) * 256
        waiting = asyncio.ensure_future(server.call("never"))
        assert await asyncio.gather(*(server.call("double", data=odd[:n]) for n in (0, 1, 65536))) == [
            b"",
            b"\0\0",
            odd + odd,
        ]
        with pytest.raises(LaunchError, match="not today") as refused:
            await server.call("refuse")
        assert refused.value.restart
        with pytest.raises(ConnectionError, match="node 7"):
            await server.call("lose")
        with pytest.raises(LaunchError, match="KeyError: 'x'"):
            await server.call("fail")
        with pytest.raises(ConnectionError, match="has ended"):
            await server.call("end")
        with pytest.raises(ConnectionError, match="has ended"):
            await waiting
        assert server.ended
        with pytest.raises(ConnectionError, match="has ended"):
            await server.call("number")

    asyncio.run(scenario())


def test_a_process_that_is_not_needed_any_more_ends(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    server = Callee((sys.executable, str(file)), tmp_path / "log")
    process: int = asyncio.run(server.call("number"))
    assert lives(process)
    del server
    gc.collect()
    wait_for(lambda: not lives(process))


def test_the_log_of_the_driver_belongs_to_the_run() -> None:
    assert belongs(f"logs/{LOG}"), "aiperf verify names all other files"
