"""The primary's work for a message, by function calls: it must not grow with the replicas."""

import asyncio
import sys
from pathlib import Path
from types import FrameType

from aiperf import __version__
from aiperf.config.settings import load_config
from aiperf.records.history_files import HistoryWriter
from aiperf.run_directory.claim import Claim
from aiperf.run_directory.paths import RunPaths
from aiperf.wire.lines import decode_to_agent, encode
from aiperf.wire.messages import ClockReply, ClockRequest, Job, Message, Progress, Ready, Recorded, Stop
from primary.context import RunContext
from primary.dispatcher import Dispatcher
from primary.display.state import LiveRun
from primary.launchers import Exit, ReplicaProcess, ReplicaSpec
from primary.native import NativeManager
from primary.work import open_work
from rehearsal.virtual.clock import VirtualClock
from rehearsal.virtual.loop import VirtualLoop, run_virtually

FEW = 24
TALKING = 4
EPOCHS = 25
SETTLED_S = 60.0
"""After the release, for the files that the start has changed."""


class Scripted(ReplicaProcess):
    """A replica that answers the handshake, takes a job, and says what a test makes it say."""

    def __init__(self, number: int) -> None:
        self.trial: int | None = None
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._number = number
        self.say(Ready(writer=f"replica-{number:04d}-1", version=__version__, accelerators=1, node={"host": "n"}))

    def say(self, message: Message) -> None:
        self._lines.put_nowait(encode(message))

    async def send(self, data: bytes) -> None:
        message = decode_to_agent(data)
        if isinstance(message, ClockRequest):
            self.say(ClockReply(utc_ms=0))
        elif isinstance(message, Job):
            self.trial = message.trial
        elif isinstance(message, Stop):
            self._lines.put_nowait(b"")

    async def receive(self) -> bytes:
        return await self._lines.get()

    async def wait(self) -> Exit:
        return Exit(0)

    async def explain(self) -> str:
        return ""

    async def cancel(self, grace_s: float) -> Exit:
        return Exit(0)

    def report(self, epoch: int) -> None:
        assert self.trial is not None
        digest = f"{epoch:064x}"
        self.say(Recorded(trial=self.trial, epoch=epoch, sequence=epoch, digest=digest))
        self.say(Progress(trial=self.trial, phase="train", epoch=epoch, epochs=EPOCHS, accuracy=0.5))


class Replicas:
    """All replicas of a run, as their launcher."""

    per_node = 10_000

    def __init__(self) -> None:
        self.started: list[Scripted] = []

    async def start(self, spec: ReplicaSpec) -> ReplicaProcess:
        self.started.append(Scripted(spec.replica))
        return self.started[-1]


class Blind:
    """A display that shows nothing: terminals draw a bounded number of rows."""

    def event(self, text: str) -> None: ...

    def refresh(self, view: LiveRun) -> None: ...

    def close(self) -> None: ...


def calls_for_messages(root: Path, replicas: int) -> int:
    """Function calls in a run of so many replicas while a few of them report their epochs."""
    overrides = {"run.dataset": "digits", "run.replicas": replicas, "training.trainer": "simulated"}
    config = load_config(overrides={**overrides, "run.duration": "10h", "run.replica_silence": "5h"})
    paths, count = RunPaths(root), 0
    paths.create()

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    async def scenario(loop: VirtualLoop) -> None:
        clock, launched = VirtualClock(loop), Replicas()
        with Claim.acquire(paths.claims, clock) as claim, HistoryWriter(paths, "primary", clock) as writer:
            context = RunContext(config, paths, launched, writer, Blind(), open_work(config), claim, NativeManager())
            dispatcher = Dispatcher(context)
            run = asyncio.create_task(dispatcher.run())
            await clock.sleep(SETTLED_S)
            assert all(replica.trial is not None for replica in launched.started)
            before = sys.getprofile()
            sys.setprofile(note)
            try:
                for epoch in range(1, EPOCHS + 1):
                    for replica in launched.started[:TALKING]:
                        replica.report(epoch)
                    await clock.sleep(1.0)
            finally:
                sys.setprofile(before)
            dispatcher.interrupt()
            await run

    run_virtually(scenario)
    return count


def test_the_work_for_a_message_does_not_grow_with_the_replicas(tmp_path: Path) -> None:
    few = calls_for_messages(tmp_path / "few", FEW)
    many = calls_for_messages(tmp_path / "many", 4 * FEW)
    assert many < 1.05 * few, "timers are a heap: their comparisons grow with the logarithm"
