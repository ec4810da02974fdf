"""The primary's connection to a replica: versions, silence, ends, the command of an agent."""

import asyncio
import subprocess
import threading
from pathlib import Path

import pytest

from aiperf import __version__
from aiperf.clock import SystemClock
from aiperf.config.settings import load_config
from aiperf.records.history_files import HistoryWriter
from aiperf.run_directory.claim import Claim
from aiperf.run_directory.paths import RunPaths
from aiperf.wire.lines import encode
from aiperf.wire.messages import (
    Alive,
    ClockReply,
    Finished,
    Message,
    Ready,
)
from primary.context import RunContext
from primary.display.state import FailSafeDisplay, LiveRun
from primary.display.terminal import open_display
from primary.launchers import Exit, ReplicaSpec, make_launcher
from primary.launchers.talk import talk_in
from primary.native import NativeManager
from primary.replica_link import ReplicaGoneError, ReplicaLink
from primary.replica_server import MAX_PAUSE_S, agent_command, pause_s
from primary.work import open_work


class Scripted:
    """A replica that sends the given messages, then nothing."""

    def __init__(self, *messages: Message, ends: Exit | None = None, known: str = "") -> None:
        self._lines = [encode(message) for message in messages]
        self._ends = ends
        self._known = known

    async def send(self, data: bytes) -> None: ...

    async def receive(self) -> bytes:
        if self._lines:
            return self._lines.pop(0)
        if self._ends is None:
            await asyncio.sleep(3600)
        return b""

    async def wait(self) -> Exit:
        assert self._ends is not None
        return self._ends

    async def explain(self) -> str:
        return self._known

    async def cancel(self, grace_s: float) -> Exit:
        return Exit(0)


def ready(version: str = __version__) -> Ready:
    return Ready(writer="w", version=version, accelerators=1, node={})


def link(process: Scripted, tmp_path: Path, start_s: float | None = None) -> ReplicaLink:
    return ReplicaLink(process, ReplicaSpec(0, ("x",), tmp_path / "log"), 0.05, start_s)


CLOCKS = [ClockReply(utc_ms=0) for _ in range(5)]


def test_a_thousand_lines_before_the_first_message_are_talk(tmp_path: Path) -> None:
    async def scenario() -> None:
        process = Scripted(ready(), *CLOCKS)
        process._lines[0] = b"no line end" + process._lines[0]
        process._lines[:0] = [b"loading module\n", b"{}\n", b'{"level": "info"}\n', b"\xff\xfe\n", *[b"talk\n"] * 1000]
        found, _ = await link(process, tmp_path).handshake(SystemClock())
        assert found.version == __version__

    asyncio.run(scenario())
    assert talk_in(tmp_path / "log")[:2] == ["loading module", "{}"]
    assert len(talk_in(tmp_path / "log")) == 1004


def test_after_the_first_message_every_line_is_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        process = Scripted(Alive(), ready())
        process._lines.insert(1, b"talk\n")
        with pytest.raises(ReplicaGoneError, match="JSON"):
            await link(process, tmp_path).handshake(SystemClock())

    asyncio.run(scenario())


def test_another_version_is_not_used(tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(ReplicaGoneError, match=rf"runs aiperf 9\.9, the primary {__version__}: install") as caught:
            await link(Scripted(ready("9.9")), tmp_path).handshake(SystemClock())
        assert not caught.value.restart

    asyncio.run(scenario())


def test_signs_of_life_keep_a_replica_and_silence_loses_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        finished = Finished(trial=1, completed=True, reason="")
        alive = link(Scripted(ready(), *CLOCKS, Alive(), Alive(), finished, known="host h7"), tmp_path)
        await alive.handshake(SystemClock())
        assert await alive.next_event() == finished
        with pytest.raises(
            ReplicaGoneError, match=r"has given no sign of life for 0 s; host h7; end of .*log: \(empty\)"
        ):
            await alive.next_event()

    asyncio.run(scenario())


def test_a_node_that_dies_during_a_start_is_not_waited_for_without_limit(tmp_path: Path) -> None:
    async def scenario() -> None:
        late = link(Scripted(known="host h7"), tmp_path, start_s=0.05)
        with pytest.raises(ReplicaGoneError, match=r"the replica was not ready within 0 s; host h7; ") as caught:
            await late.handshake(SystemClock())
        assert caught.value.restart
        in_queue = asyncio.create_task(link(Scripted(), tmp_path).handshake(SystemClock()))
        assert not (await asyncio.wait({in_queue}, timeout=0.2))[0], "of a scheduler"
        in_queue.cancel()

    asyncio.run(scenario())


def test_a_log_whose_storage_does_not_answer_keeps_nothing_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def stalled(log: Path) -> str:
        answers.wait(30)
        return "late"

    async def scenario() -> None:
        gone = link(Scripted(ends=Exit(1)), tmp_path)
        with pytest.raises(ReplicaGoneError, match=r"end of .*log: \(its storage does not answer\)"):
            await gone.handshake(SystemClock())
        assert "its storage does not answer" in await gone.describe_absence("not ready")
        answers.set()  # the thread is waited for when the loop ends

    monkeypatch.setattr("primary.replica_link.LOG_S", 0.01)
    monkeypatch.setattr("primary.replica_link.last_lines", stalled)
    asyncio.run(scenario())


def test_an_end_is_reported_with_the_facts_of_the_launcher(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "log").write_text("one\nlast words\n")
        gone = link(Scripted(ready(), *CLOCKS, ends=Exit(-9), known="SLURM node n3 is DOWN: a node failed"), tmp_path)
        await gone.handshake(SystemClock())
        with pytest.raises(ReplicaGoneError, match=r"killed by SIGKILL; SLURM node n3 is DOWN.*one \| last words"):
            await gone.next_event()

    asyncio.run(scenario())


@pytest.mark.parametrize("heard", [0, 1, 7])
def test_a_line_that_is_cut_off_is_the_end_of_the_connection(heard: int, tmp_path: Path) -> None:
    """And no foreign message: that would be another version, or another program on the pipe."""

    async def scenario() -> None:
        process = Scripted(ready(), *CLOCKS, Alive(), Finished(trial=1, completed=True, reason=""), ends=Exit(None))
        process._lines[heard:] = [process._lines[heard][:-5]]
        cut = link(process, tmp_path)
        with pytest.raises(ReplicaGoneError, match="the replica cannot be reached: the connection is lost") as caught:
            await cut.handshake(SystemClock())
            await cut.next_event()
        assert caught.value.restart

    asyncio.run(scenario())


def command_with(
    tmp_path: Path, suite: str = "none", released: bool = False, released_ms: int | None = None, **settings: object
) -> tuple[str, ...]:
    own = {f"environment.{k}": v for k, v in settings.items()}
    config = load_config(overrides={"run.dataset": "digits", "micro.suite": suite, **own})
    paths = RunPaths(tmp_path / "odd $name")
    paths.create()
    clock = SystemClock()
    with HistoryWriter(paths, "primary", clock) as writer, Claim.acquire(paths.claims, SystemClock()) as claim:
        context = RunContext(
            config,
            paths,
            make_launcher(config, clock),
            writer,
            open_display(clock),
            open_work(config),
            claim,
            NativeManager(),
            released_ms,
        )
        return agent_command(context, 3, released)


def test_nodes_are_measured_before_the_release_alone(tmp_path: Path) -> None:
    assert "--measure" in command_with(tmp_path / "a", "quick")
    assert "--measure" not in command_with(tmp_path / "b")
    assert "--measure" not in command_with(tmp_path / "c", "quick", released=True), "a late replica, or one again"
    assert "--measure" not in command_with(tmp_path / "d", "quick", released_ms=1), "a resumed run"


def test_the_environment_of_a_replica(tmp_path: Path) -> None:
    plain = command_with(tmp_path / "a")
    assert plain[1:4] == ("-P", "-m", "replica")
    contained = command_with(tmp_path / "b", python="python3", container=["apptainer", "exec", "x.sif"])
    assert contained[:7] == ("apptainer", "exec", "x.sif", "python3", "-P", "-m", "replica")
    activated = command_with(tmp_path / "c", python="echo", activate="export X=1; test -d /")
    shown = subprocess.run(activated, capture_output=True, text=True, check=True).stdout
    assert shown.startswith(f"-P -m replica --run {tmp_path}/c/odd $name --replica 3")


class Breaking:
    """A display on a terminal that was closed."""

    def __init__(self) -> None:
        self.calls = list[str]()

    def event(self, text: str) -> None:
        self.calls.append("event")
        raise BrokenPipeError

    def refresh(self, view: LiveRun) -> None:
        self.calls.append("refresh")

    def close(self) -> None:
        self.calls.append("close")
        raise BrokenPipeError


def test_a_display_that_fails_is_not_used_again() -> None:
    broken = Breaking()
    display = FailSafeDisplay(broken)
    display.event("x")
    display.refresh(LiveRun(1.0))
    display.close()
    assert broken.calls == ["event", "close"], "it gives standard output back"


def test_the_pause_before_another_attempt_has_a_limit_however_many_have_failed() -> None:
    assert [pause_s(2.0, failures) for failures in (0, 1, 4, 5)] == [2.0, 4.0, 32.0, MAX_PAUSE_S]
    assert pause_s(0.05, 5000) == MAX_PAUSE_S, "a power of two that no float holds"
    assert pause_s(0.0, 5000) == 0.0
