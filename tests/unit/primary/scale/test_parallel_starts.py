"""Replicas that are started at the same time: as many as `launch.parallel` allows."""

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from aiperf.clock import SystemClock
from aiperf.config.settings import load_config
from primary.launchers import ReplicaSpec, local
from primary.launchers.local import LocalLauncher


def test_no_more_replicas_are_started_at_once_than_the_setting_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    starting, most = 0, 0

    async def start_child(*_: object) -> SimpleNamespace:
        nonlocal starting, most
        starting += 1
        most = max(most, starting)
        await asyncio.sleep(0)
        starting -= 1
        return SimpleNamespace(pid=os.getpid())

    async def scenario() -> None:
        monkeypatch.setattr(local, "start_child", start_child)
        config = load_config(overrides={"run.dataset": "digits", "run.replicas": 9, "launch.parallel": 3})
        launcher = LocalLauncher(config, SystemClock())
        await asyncio.gather(*(launcher.start(ReplicaSpec(n, ("x",), Path("log"))) for n in range(9)))

    asyncio.run(scenario())
    assert most == 3
