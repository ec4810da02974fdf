"""Failures of starts that pass: the replica is started again, and not given up for the run."""

import asyncio
import errno
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from aiperf.answers import Answer
from aiperf.clock import SystemClock
from aiperf.config.settings import load_config
from aiperf.errors import LaunchError
from aiperf.storage.patience import PATIENCE
from primary.allocations import Allocation
from primary.launchers import ReplicaSpec, pipes
from primary.launchers.pipes import start_child
from primary.launchers.ray.host import NodeCommands
from primary.launchers.ray.launcher import RayLauncher
from primary.launchers.scheduler import SchedulerLauncher
from primary.launchers.ssh import SshLauncher, SshProcess
from primary.nodes import ssh_client

OF_STORAGE = [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE]


def refused_by(code: int, times: int = 1000) -> Any:
    """A function that fails with an error of files some times, and then opens a file."""
    left, real = [times], os.open

    def open_it(path: Any, *words: Any) -> int:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(code, os.strerror(code), str(path))
        return real(path, *words)

    return open_it


def spec(tmp_path: Path, *command: str) -> ReplicaSpec:
    return ReplicaSpec(3, command or ("true",), tmp_path / "r3.log")


def launcher(scheduler: str = "LSF") -> SchedulerLauncher:
    return SchedulerLauncher(
        load_config(), Allocation(scheduler, "7", tuple(f"n{number}.invalid" for number in range(4)))
    )


def refusal(starting: Any) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        asyncio.run(starting)
    return caught.value


@pytest.mark.parametrize("code", OF_STORAGE, ids=errno.errorcode.__getitem__)
def test_a_task_that_storage_refuses_is_a_failure_that_passes(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "open", refused_by(code))
    error = refusal(launcher().start(spec(tmp_path)))
    assert error.restart
    assert os.strerror(code) in str(error)
    assert not list(tmp_path.iterdir())


def test_a_task_has_the_patience_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "open", refused_by(errno.ENOSPC, 2))
    with PATIENCE.set(60):
        error = refusal(launcher("Flux").start(spec(tmp_path)))
    assert "flux: No such file" in str(error), "the task was written at last"
    assert not error.restart
    assert [path.name for path in tmp_path.iterdir()] == ["r3.log"]


@pytest.mark.parametrize("code", OF_STORAGE, ids=errno.errorcode.__getitem__)
def test_a_log_that_storage_refuses_is_a_failure_that_passes(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object) -> None:
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr(Path, "open", refuse)
    error = refusal(start_child(spec(tmp_path), ["true"], {}))
    assert error.restart
    assert str(error) == f"cannot start replica 3: {tmp_path / 'r3.log'}: {os.strerror(code)}"
    monkeypatch.undo()
    assert not refusal(start_child(spec(tmp_path), ["/no/such/program"], {})).restart


def test_a_node_whose_storage_is_stale_starts_its_replica_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(folder: Path) -> LaunchError:
        return refusal(NodeCommands().start(3, ["true"], str(folder / "r3.log"), {}, "/"))

    missing = start(tmp_path / "none")
    assert not missing.restart
    assert "output directory must be on a file system that all nodes share" in str(missing)

    def stale(self: Path, **_: object) -> None:
        raise OSError(errno.ESTALE, "Stale file handle", str(self))

    monkeypatch.setattr(Path, "stat", stale)
    assert start(tmp_path).restart


def test_an_ssh_that_is_slow_to_answer_is_asked_again_at_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Answer(None, errors="ssh has given no answer within 20 s")
    monkeypatch.setattr(ssh_client, "ask_and_wait", lambda *_, **__: late)
    with pytest.raises(LaunchError, match="no answer within 20 s: -- n1") as caught:
        ssh_client.run(["ssh", "-G", "--", "n1"])
    assert caught.value.restart


@pytest.mark.parametrize(
    ("said", "passes"),
    [
        ("ssh: Could not resolve hostname n1: Temporary failure in name resolution", True),
        ("ssh: Could not resolve hostname n1: Name or service not known", False),
        ("exec request failed on channel 0", True),
        ("shell request failed on channel 0", True),
        ("root@n1: Permission denied (publickey).", False),
    ],
)
def test_what_ssh_says_of_failures_that_pass(
    said: str, passes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = f"import sys; sys.exit(print({said!r}, file=sys.stderr) or 255)"
    monkeypatch.setattr(ssh_client, "ssh_command", lambda *_: [sys.executable, "-c", failing])
    monkeypatch.setattr(ssh_client, "explained", lambda *_: said)
    process = SshProcess(spec(tmp_path), "n1", load_config(), asyncio.Semaphore(1))
    assert refusal(process.begin(b"true\n")).restart == passes


def test_a_shell_that_hangs_gives_its_place_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "HUNG_START_S", 0.1)
    config = load_config(overrides={"run.launcher": "ssh", "ssh.hosts": ["n1"], "launch.parallel": 1})
    monkeypatch.setattr(ssh_client, "check_jumps", lambda *_: None)
    monkeypatch.setattr(ssh_client, "ssh_command", lambda *_: ["sh", "-c", "exec sleep 600"])
    hosts = SshLauncher(config, SystemClock())

    async def scenario() -> None:
        for _ in range(2):
            with pytest.raises(LaunchError, match="n1: its shell did not start the replica within 0 s") as caught:
                await hosts.start(ReplicaSpec(0, ("true",), tmp_path / "log"))
            assert caught.value.restart

    asyncio.run(scenario())


def test_a_starter_that_hangs_gives_its_place_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "HUNG_START_S", 0.1)
    program = tmp_path / "pbsdsh"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    error = refusal(launcher("PBS").start(spec(tmp_path)))
    assert str(error) == "pbsdsh has started no relay within 0 s"
    assert error.restart


def test_starts_that_wait_for_storage_do_not_hold_the_others_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All starts share one driver, whose log is opened while the event loop goes on."""
    opened = list[Path]()
    goes_on = threading.Event()

    class Driver:
        ended = False

        def __init__(self, _: object, log: Path) -> None:
            assert goes_on.wait(20), "the event loop stands still"
            opened.append(log)

        async def call(self, *_: object, **words: object) -> int:
            return int(str(words["replica"]))

    monkeypatch.setattr("primary.launchers.ray.launcher.Callee", Driver)

    async def scenario() -> None:
        cluster = RayLauncher(load_config(), SystemClock())
        starts = [asyncio.create_task(cluster.start(spec(tmp_path))) for _ in range(3)]
        await asyncio.sleep(0)
        goes_on.set()
        await asyncio.gather(*starts)
        assert opened == [tmp_path / "ray.log"]

    asyncio.run(scenario())
