"""A replica behind ssh, with a local shell in place of the connection."""

import asyncio
import threading
from pathlib import Path

import pytest

from aiperf.config.settings import load_config
from primary.launchers import ReplicaSpec
from primary.launchers.ssh import SshProcess, remote_script
from primary.nodes import ssh_client


@pytest.fixture
def asked_in(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads in which the words of the client were looked for."""
    found = list[threading.Thread]()

    def local(*_: object) -> list[str]:
        found.append(threading.current_thread())
        return ["sh", "-c"]

    monkeypatch.setattr(ssh_client, "ssh_command", local)
    return found


async def sleeping(tmp_path: Path) -> SshProcess:
    spec = ReplicaSpec(0, ("sleep", "600"), tmp_path / "log")
    process = SshProcess(spec, "n1", load_config(), asyncio.Semaphore(1))
    await process.begin(remote_script(spec, ("n1",)))
    return process


def test_the_client_is_looked_for_once_and_not_in_the_event_loop(
    asked_in: list[threading.Thread], tmp_path: Path
) -> None:
    async def scenario() -> None:
        await (await sleeping(tmp_path)).cancel(60)

    asyncio.run(scenario())
    assert len(asked_in) == 1
    assert asked_in[0] is not threading.current_thread()


@pytest.mark.usefixtures("asked_in")
def test_a_kill_that_was_cancelled_in_its_middle_ends_the_local_ssh_at_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The host has lost its power: its connection would be given up after minutes only."""

    async def scenario() -> None:
        process = await sleeping(tmp_path)
        signalling = asyncio.Event()

        async def hang(*_: object) -> None:
            signalling.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(process, "_signal", hang)
        first = asyncio.create_task(process.cancel(60))
        await signalling.wait()
        first.cancel()
        async with asyncio.timeout(60):
            ended = await process.cancel(0.1)
            assert await process.wait() == ended

    asyncio.run(scenario())
