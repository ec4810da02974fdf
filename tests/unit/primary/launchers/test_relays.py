"""Relays on other nodes: their greeting, their environment, their program, their starters."""

import ast
import asyncio
import contextlib
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aiperf.config.placement import CPUS_DIVIDED, GPUS_DIVIDED
from aiperf.config.sections.cluster import EnvironmentSection
from aiperf.config.settings import load_config
from aiperf.errors import LaunchError
from aiperf.host import this_host
from aiperf.machine.addresses import own_addresses
from primary.allocations import Allocation
from primary.launchers.relays import remote
from primary.launchers.relays.process import RelayedProcess
from primary.launchers.relays.remote_starters import REMOTE_STARTERS, RemoteCommand
from primary.launchers.relays.rendezvous import MAX_STRANGERS, Rendezvous
from primary.launchers.relays.task import interpreter, is_this_host
from primary.launchers.scheduler import SchedulerLauncher

COMMAND = ("/opt/python", "-I", "/runs/odd 'name'/task")


def test_the_program_of_the_relay_is_python_3_6() -> None:
    ast.parse(Path(remote.__file__).read_text(), feature_version=(3, 6))


def test_only_the_relay_gets_through() -> None:
    async def scenario() -> None:
        rendezvous = Rendezvous()
        await rendezvous.open()
        task = {"addresses": ["127.0.0.1"], "port": rendezvous.port}
        _, silent = await asyncio.open_connection("127.0.0.1", rendezvous.port)
        reader, writer = await asyncio.open_connection("127.0.0.1", rendezvous.port)
        await reader.readline()
        writer.write(b"00 00\n")
        assert await reader.read() == b"", "a stranger is not answered"
        connection, source = await asyncio.to_thread(remote.connect, {**task, "secret": rendezvous.secret})
        starter = await asyncio.create_subprocess_exec("sleep", "600")
        channel = await rendezvous.arrival(starter)
        assert channel is not None
        channel[1].write(b"hello\n")
        assert await asyncio.to_thread(source.readline) == b"hello\n"
        rendezvous.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", rendezvous.port)
        starter.kill()
        await starter.wait()
        source.close()
        connection.close()
        for end in (writer, silent, channel[1]):
            end.close()
            await end.wait_closed()

    asyncio.run(scenario())


def test_strangers_cannot_take_the_descriptors_of_the_primary() -> None:
    async def scenario() -> None:
        rendezvous = Rendezvous()
        await rendezvous.open()
        strangers = [await asyncio.open_connection("127.0.0.1", rendezvous.port) for _ in range(MAX_STRANGERS + 2)]
        for reader, _ in strangers:
            assert await reader.readline(), "the primary speaks first"
        for reader, _ in strangers[:2]:
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b"", "the oldest two have lost their places"
        task = {"addresses": ["127.0.0.1"], "port": rendezvous.port, "secret": rendezvous.secret}
        connection, source = await asyncio.to_thread(remote.connect, task)
        starter = await asyncio.create_subprocess_exec("sleep", "600")
        channel = await rendezvous.arrival(starter)
        assert channel is not None
        rendezvous.close()
        for reader, _ in strangers:
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b"", "no stranger outlives the port"
        assert not channel[1].is_closing()
        starter.kill()
        await starter.wait()
        source.close()
        connection.close()
        for _, writer in (*strangers, channel):
            writer.close()
            with contextlib.suppress(ConnectionResetError):
                await writer.wait_closed()

    asyncio.run(scenario())


def test_a_relay_that_comes_too_late_is_not_taken_for_one_that_is_awaited() -> None:
    """Its starter has ended: without an answer it ends, too, and its replica is not started."""

    async def scenario() -> None:
        rendezvous = Rendezvous()
        await rendezvous.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", rendezvous.port)
        theirs = (await reader.readline()).strip()
        assert await rendezvous.arrival(await asyncio.create_subprocess_exec("false")) is None
        rendezvous.close()
        writer.write(b"00 " + remote.proof(rendezvous.secret, b"relay", theirs, b"00") + b"\n")
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()

    asyncio.run(scenario())


def test_a_relay_that_takes_nothing_can_be_cancelled(tmp_path: Path) -> None:
    """A relay that is stopped, or whose node has lost its power: its connection is full."""

    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        channel = await asyncio.open_connection(sock=ours)
        starter = await asyncio.create_subprocess_exec("sleep", "600", start_new_session=True)
        process = RelayedProcess(starter, channel, tmp_path / "task", "host n1")
        sending = asyncio.create_task(process.send(bytes(1 << 24)))
        await asyncio.sleep(0)
        assert not sending.done(), "there is no room for it"
        async with asyncio.timeout(60):
            await process.cancel(0.1)
            await sending
        assert starter.returncode is not None
        theirs.close()

    asyncio.run(scenario())


def test_a_relay_obeys_the_primary_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program at the port does not know the secret."""
    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    monkeypatch.setattr(remote, "PAUSE_S", 0.0)

    async def scenario() -> None:
        impostor = Rendezvous()
        await impostor.open()
        impostor.secret = "another"
        task = {"addresses": ["127.0.0.1"], "port": impostor.port, "secret": "the secret"}
        with pytest.raises(OSError, match=r"cannot reach the primary at port \d+ of 127\.0\.0\.1: another program"):
            await asyncio.to_thread(remote.connect, task)
        impostor.close()
        await asyncio.sleep(0)

    asyncio.run(scenario())


def test_no_relay_means_the_starter_has_ended() -> None:
    async def scenario() -> None:
        rendezvous = Rendezvous()
        await rendezvous.open()
        assert await rendezvous.arrival(await asyncio.create_subprocess_exec("false")) is None
        rendezvous.close()

    asyncio.run(scenario())


def test_the_node_knows_its_devices_and_the_primary_the_rest(tmp_path: Path) -> None:
    task: dict[str, Any] = {
        "environment": {
            "PATH": "/job/bin",
            "CUDA_VISIBLE_DEVICES": "0",
            "HOSTNAME": "node1",
            "PBS_TASKNUM": "1",
            "PBS_NODEFILE": "/nodes",
            "TMPDIR": "/tmp/of/node1",
        },
        "variables": {"ODD": "1"},
    }
    node = {"PATH": "/bin", "HOSTNAME": "node2", "PBS_TASKNUM": "7", "TMPDIR": str(tmp_path)}
    assert remote.merged(task, node) == {
        "PATH": "/job/bin",
        "HOSTNAME": "node2",
        "PBS_TASKNUM": "7",
        "PBS_NODEFILE": "/nodes",
        "TMPDIR": str(tmp_path),
        "ODD": "1",
    }
    assert remote.merged(task, {**node, "CUDA_VISIBLE_DEVICES": "4,5"})["CUDA_VISIBLE_DEVICES"] == "4,5"
    assert remote.merged({**task, "own_host": True}, node)["CUDA_VISIBLE_DEVICES"] == "0", "the job's, on its own host"
    own = remote.merged({**task, "own_host": True}, {**node, "CUDA_VISIBLE_DEVICES": "4,5"})
    assert own["CUDA_VISIBLE_DEVICES"] == "4,5"
    assert "the job has CUDA_VISIBLE_DEVICES=0 on the primary's host" in remote.unlimited(task, node)
    for other, there in (
        ({**task, "own_host": True}, node),
        (task, {**node, "ROCR_VISIBLE_DEVICES": "1"}),
        ({**task, "environment": {}}, node),
    ):
        assert remote.unlimited(other, there) == ""
    task["environment"] = {"TMPDIR": str(tmp_path)}
    assert remote.merged(task, {"TMPDIR": "/"})["TMPDIR"] == str(tmp_path), "the job's own choice"


def words(scheduler: str, per_node: int = 1, **facts: tuple[int, ...]) -> list[str]:
    allocation = Allocation(scheduler, "1", ("a", "a", "b", "b"), **facts)
    return REMOTE_STARTERS[scheduler].words(RemoteCommand(allocation, "b", per_node, COMMAND))


def test_command_lines_of_the_starters() -> None:
    assert words("PBS") == ["-n", "2", "--", *COMMAND], "the first line of the host in the node file"
    assert words("LSF") == ["-z", "b", "-no-shell", *COMMAND]
    start, host, *rest = words("Grid Engine")
    assert (start, host) == ("-inherit", "b")
    shown = subprocess.run(["sh", "-c", f"printf '%s\\n' {' '.join(rest)}"], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines() == [*COMMAND], "after a shell has read it again"
    fixed = ["run", "--unbuffered", "--requires=host:b", "--nodes=1", "--ntasks=1"]
    assert words("Flux") == [*fixed, "--exclusive", *COMMAND]
    half = words("Flux", 2, cpus=(64, 9), gpus=(0, 4))
    assert half == [
        *fixed,
        "--cores-per-task=4",
        "--gpus-per-task=2",
        "env",
        f"{CPUS_DIVIDED}=2",
        f"{GPUS_DIVIDED}=2",
        *COMMAND,
    ]
    assert words("Flux", 2, cpus=(32, 8), gpus=(4, 0)) == [
        *fixed,
        "--cores-per-task=4",
        "env",
        f"{CPUS_DIVIDED}=2",
        *COMMAND,
    ]
    with pytest.raises(LaunchError, match=r"replica\.per_node = 2: Flux job 1 has None cores on b"):
        words("Flux", 2)


def test_the_python_of_the_relay_is_the_nodes() -> None:
    some = ("/usr/bin/env", "python3")
    assert interpreter(EnvironmentSection(), sys.executable) == (sys.executable,)
    assert interpreter(EnvironmentSection(python="/opt/python"), sys.executable) == ("/opt/python",)
    assert interpreter(EnvironmentSection(python="python"), sys.executable) == some
    assert interpreter(EnvironmentSection(container=("apptainer",), python="/in/it"), sys.executable) == some
    assert interpreter(EnvironmentSection(activate="module load x"), sys.executable) == some


def test_addresses_are_for_other_nodes() -> None:
    name, *addresses = own_addresses()
    assert name
    assert addresses == ["127.0.0.1"] or not any(address.startswith("127.") for address in addresses)


def test_grid_engine_starts_nothing_on_the_host_of_its_own_script() -> None:
    """As `job_is_first_task TRUE` and `control_slaves FALSE` refuse it."""
    own = this_host().name()
    for title, program in (("Grid Engine", None), ("LSF", "blaunch")):
        launcher = SchedulerLauncher(load_config(), Allocation(title, "7", (own, "another.invalid")))
        words = launcher._command(own, Path("/task"), directly=program is None)
        assert words[0] == (program or sys.executable)
        assert words[-1] == "/task"
        assert launcher._command("another.invalid", Path("/task"), directly=False)[0] == REMOTE_STARTERS[title].program
    assert is_this_host(f"{own}.example")
    assert not is_this_host("another.invalid")
    assert "control_slaves TRUE" in REMOTE_STARTERS["Grid Engine"].hint
