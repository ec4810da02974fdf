"""A replica behind ssh, with a local shell in place of the connection."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from aiperf.config.settings import load_config
from primary.launchers import ReplicaSpec
from primary.launchers.ssh import SshProcess, remote_script
from primary.nodes import ssh_client


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., SshProcess]:
    monkeypatch.setattr(ssh_client, "ssh_command", lambda *_: ["sh", "-c"])

    def process(*command: str) -> SshProcess:
        spec = ReplicaSpec(0, command, tmp_path / "log")
        return SshProcess(spec, "n1", load_config(), asyncio.Semaphore(1))

    return process


def test_a_kill_that_was_cancelled_in_its_middle_ends_the_local_ssh_at_the_next(
    make: Callable[..., SshProcess], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The host has lost its power: its connection would be given up after minutes only."""

    async def scenario() -> None:
        process = make("sleep", "600")
        await process.begin(remote_script(ReplicaSpec(0, ("sleep", "600"), tmp_path / "log"), ("n1",)))
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
