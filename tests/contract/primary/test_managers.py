"""One suite for every manager: the dispatcher at work with replicas that follow its messages."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiperf import __version__
from aiperf.clock import SystemClock
from aiperf.config.settings import load_config
from aiperf.errors import UsageError
from aiperf.network.operations import count
from aiperf.records.bodies import AnyBody, JobIssued, RunEnded, TrialClosed
from aiperf.records.history_files import HistoryReader, HistoryWriter
from aiperf.run_directory.claim import Claim, find_holder
from aiperf.run_directory.manifest import write_manifest
from aiperf.run_directory.paths import RunPaths
from aiperf.wire.lines import decode_to_agent, encode
from aiperf.wire.messages import (
    CANCELLED,
    Cancel,
    ClockReply,
    ClockRequest,
    Finished,
    Job,
    Message,
    Ready,
    Started,
    Stop,
)
from primary.context import RunContext
from primary.dispatcher import Dispatcher
from primary.display.state import LiveRun
from primary.launchers import Exit, ReplicaProcess, ReplicaSpec
from primary.managers import MANAGERS, Manager
from primary.native import NativeManager
from primary.nni.manager import NniManager
from primary.nni.messages import Clock, Closed, Offer, Wanted
from primary.run import Companion
from primary.work import open_work
from search_space.resnet import resnet

ARCHITECTURE = resnet(50, 32, 10)
TRAINS: dict[str, Any] = {
    "architecture": ARCHITECTURE.hash,
    "parent": None,
    "hyperparameters": {"batch_size": 64},
    "epochs": 1,
    "operations_per_image": count(ARCHITECTURE).operations.total,
    "depth": ARCHITECTURE.depth,
    "weights": ARCHITECTURE.parameter_count,
}
HELD = frozenset({3})
"""Jobs that do not end before they are cancelled."""


class Obedient:
    """A replica that does every job at once."""

    def __init__(self, held: frozenset[int]) -> None:
        self._held = held
        self._holds: int | None = None
        self._said: asyncio.Queue[bytes] = asyncio.Queue()
        self._say(Ready(writer="replica-0000-1", version=__version__, accelerators=1, node={}))

    def _say(self, *messages: Message) -> None:
        for message in messages:
            self._said.put_nowait(encode(message))

    async def send(self, data: bytes) -> None:
        message = decode_to_agent(data)
        if isinstance(message, ClockRequest):
            self._say(ClockReply(utc_ms=SystemClock().utc_ms()))
        elif isinstance(message, Job):
            await asyncio.sleep(0.01)
            self._say(Started(trial=message.trial, **TRAINS))
            if message.trial in self._held:
                self._holds = message.trial
            else:
                self._say(Finished(trial=message.trial, completed=True, reason=""))
        elif isinstance(message, Cancel) and message.trial == self._holds:
            self._holds = None
            self._say(Finished(trial=message.trial, completed=False, reason=message.reason, kind=CANCELLED))
        elif isinstance(message, Stop):
            self._said.put_nowait(b"")

    async def receive(self) -> bytes:
        return await self._said.get()

    async def wait(self) -> Exit:
        return Exit(0)

    async def explain(self) -> str:
        return ""

    async def cancel(self, grace_s: float) -> Exit:
        self._said.put_nowait(b"")
        return Exit(0)


class Launcher:
    per_node = 1

    def __init__(self, held: frozenset[int]) -> None:
        self._held = held

    async def start(self, spec: ReplicaSpec) -> ReplicaProcess:
        return Obedient(self._held)


class Silent:
    def event(self, text: str) -> None: ...

    def refresh(self, view: LiveRun) -> None: ...

    def close(self) -> None: ...


class Nni:
    """NNI as its tuner shows it to the primary: room for some trials, then for one after each."""

    def __init__(self, room: int) -> None:
        self.heard: list[Message] = []
        self.manager = NniManager(self._hear)
        if room:
            self.manager.want(Wanted(jobs=room))

    def _hear(self, message: Message) -> None:
        self.heard.append(message)
        if isinstance(message, Offer):
            self.manager.want(Wanted(jobs=1))


PACING: dict[str, Callable[[], Manager]] = {"native": NativeManager, "nni": lambda: Nni(room=2).manager}
"""The pacing of each registered manager, without the programs around it."""


@pytest.fixture(params=list(MANAGERS))
def manager(request: pytest.FixtureRequest) -> Manager:
    if request.param not in PACING:
        pytest.fail(f"manager {request.param!r} is registered, but not set up in this suite: add it to PACING")
    return PACING[request.param]()


def run(
    root: Path,
    manager: Manager,
    companion: Companion | None = None,
    held: frozenset[int] = frozenset(),
    duration_s: float = 0.6,
) -> tuple[str, list[AnyBody]]:
    """A run of two replicas: how it ended, and what was recorded."""
    overrides = {"run.dataset": "digits", "run.replicas": 2, "run.duration": duration_s}
    config = load_config(overrides={**overrides, "replica.max_failed_trials": 1, "replica.retry_delay": 0.05})
    paths = RunPaths(root)
    paths.create()
    write_manifest(paths, config)

    async def scenario(writer: HistoryWriter, claim: Claim) -> str:
        context = RunContext(config, paths, Launcher(held), writer, Silent(), open_work(config), claim, manager)
        dispatcher = Dispatcher(context)
        accompanying = asyncio.create_task(companion(dispatcher)) if companion else None
        reason = await dispatcher.run()
        if accompanying:  # it has nothing to wait for any more
            async with asyncio.timeout(10):
                await accompanying
        return reason

    with HistoryWriter(paths, "primary", SystemClock()) as writer, Claim.acquire(paths.claims, SystemClock()) as claim:
        reason = asyncio.run(scenario(writer, claim))
    return reason, [record.body for record in HistoryReader(paths).read_new().records]


def issued(root: Path) -> list[JobIssued]:
    """The jobs of a run so far."""
    bodies = (record.body for record in HistoryReader(RunPaths(root)).read_new().records)
    return [body for body in bodies if isinstance(body, JobIssued)]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def once(condition: Callable[[], bool]) -> Companion:
    """A companion that interrupts the run as soon as a condition is met."""

    async def interrupt(dispatcher: Dispatcher) -> None:
        await until(condition)
        dispatcher.interrupt()

    return interrupt


def test_every_replica_gets_one_job_after_the_other(tmp_path: Path, manager: Manager) -> None:
    def enough() -> bool:
        counts = Counter(job.replica for job in issued(tmp_path))
        return min(counts[0], counts[1]) >= 5

    run(tmp_path, manager, once(enough), duration_s=60)
    jobs = issued(tmp_path)
    assert enough(), "before the deadline"
    assert [job.trial for job in jobs] == list(range(1, len(jobs) + 1))


def assert_ends_once(bodies: list[AnyBody]) -> None:
    """One end of the run; after it the primary only closes what was in progress."""
    (end,) = (place for place, body in enumerate(bodies) if isinstance(body, RunEnded))
    assert all(isinstance(body, TrialClosed) for body in bodies[end + 1 :])


def test_the_deadline_ends_it(tmp_path: Path, manager: Manager) -> None:
    reason, bodies = run(tmp_path, manager)
    assert reason == "deadline"
    assert_ends_once(bodies)


def test_an_interruption_ends_it_in_order(tmp_path: Path, manager: Manager) -> None:
    reason, bodies = run(tmp_path, manager, once(lambda: bool(issued(tmp_path))), duration_s=60)
    assert reason == "interrupted"
    assert_ends_once(bodies)


def test_a_cancelled_job_does_not_count_as_a_failure_of_its_replica(tmp_path: Path, manager: Manager) -> None:
    def after() -> list[JobIssued]:
        """Further jobs of the replica that has job 3."""
        jobs = issued(tmp_path)
        return [job for job in jobs if job.replica == jobs[2].replica and job.trial > 3]

    async def cancel(dispatcher: Dispatcher) -> None:
        await until(lambda: len(issued(tmp_path)) >= 3)
        await dispatcher.cancel(99, "never issued")
        while not after():  # nothing happens before its replica has it
            await dispatcher.cancel(3, "not wanted")
            await asyncio.sleep(0.01)
        await until(lambda: len(after()) >= 3)
        dispatcher.interrupt()

    reason, _ = run(tmp_path, manager, cancel, HELD, duration_s=60)
    assert reason == "interrupted"
    assert len(after()) >= 3


@pytest.mark.parametrize("name", list(MANAGERS))
def test_a_run_that_has_reached_its_deadline_is_not_resumed(name: str, tmp_path: Path) -> None:
    run(tmp_path, NativeManager())
    before = HistoryReader(RunPaths(tmp_path)).read_new().records
    config = load_config(overrides={"run.dataset": "digits", "run.manager": name, "training.trainer": "simulated"})
    paths = RunPaths(tmp_path)
    with pytest.raises(UsageError, match="has reached its deadline; there is nothing to resume"):
        MANAGERS.load(name)(config, paths, SystemClock()).resume(new_clock=False)
    assert HistoryReader(paths).read_new().records == before
    assert find_holder(paths.claims, 0) is None


def test_without_room_in_nni_nothing_is_issued_and_the_run_ends_in_time(tmp_path: Path) -> None:
    offered = Nni(room=0)
    reason, bodies = run(tmp_path, offered.manager)
    assert reason == "deadline"
    assert not any(isinstance(body, JobIssued) for body in bodies)
    clock, closed = offered.heard
    assert isinstance(clock, Clock)
    assert clock.left_s <= 0.6
    assert closed == Closed(reason="deadline")


def test_nni_is_offered_what_is_trained(tmp_path: Path) -> None:
    offered = Nni(room=1)

    def offers() -> list[Offer]:
        return [message for message in offered.heard if isinstance(message, Offer)]

    run(tmp_path, offered.manager, once(lambda: bool(offers())), duration_s=60)
    first = offers()[0]
    assert first.trial == 1
    replica = first.parameters.pop("replica")
    assert replica in (0, 1)
    assert first.parameters == {
        "trial": 1,
        "round": 1,
        "point": 0,
        "architecture": ARCHITECTURE.hash,
        "epochs": 1,
        "batch_size": 64,
        "operations_per_image": 516270474,
        "depth": 54,
        "weights": 23581642,
    }
