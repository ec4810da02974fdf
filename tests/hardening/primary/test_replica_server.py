"""What goes wrong while a replica is served costs this replica; only lost records cost the run."""

import asyncio
import io
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from aiperf.config.settings import RunConfig, load_config
from aiperf.errors import LaunchError, StorageError
from aiperf.records.bodies import AnyBody, EpochCompleted, JobIssued, ReplicaLost, RunEnded, TrialClosed
from aiperf.records.history_files import HistoryReader, HistoryWriter
from aiperf.run_directory.paths import RunPaths
from aiperf.run_directory.recorded_files import Beginning
from aiperf.storage.reserve import Reserve
from aiperf.wire.lines import decode_to_agent
from aiperf.wire.messages import Job, Stop, ToPrimary
from analysis.reading.run_data import read_run
from primary.context import give_back
from primary.dispatcher import Dispatcher
from primary.launchers import Exit, ReplicaProcess, ReplicaSpec
from primary.managers import EndReason
from primary.native import NativeManager
from primary.work.automl import AutomlRounds
from rehearsal.virtual.processes import VirtualProcess
from tests.support.virtual.lifecycle import conduct_virtually
from tests.support.virtual.time import InProcessLauncher


def configured(**settings: object) -> RunConfig:
    return load_config(
        overrides={
            "run.dataset": "digits",
            "run.replicas": 2,
            "run.duration": "10m",
            "search.strategy": "random",
            "training.trainer": "simulated",
            "simulated.epoch_seconds": 60.0,
            **{name.replace("__", "."): value for name, value in settings.items()},
        }
    )


def bodies(root: Path, kind: type[AnyBody]) -> list[AnyBody]:
    return [record.body for record in HistoryReader(RunPaths(root)).read_new().records if isinstance(record.body, kind)]


def lost(root: Path) -> list[ReplicaLost]:
    return [body for body in bodies(root, ReplicaLost) if isinstance(body, ReplicaLost)]


Fault = Callable[[pytest.MonkeyPatch], None]
REAL_START = InProcessLauncher.start


def at_start(error: Exception) -> Fault:
    async def start(self: InProcessLauncher, spec: ReplicaSpec) -> ReplicaProcess:
        if spec.replica == 1:
            raise error
        return await REAL_START(self, spec)

    return lambda patch: patch.setattr(InProcessLauncher, "start", start)


class Faulty(VirtualProcess):
    """A replica whose connection fails: what it raises, by method."""

    errors: dict[str, Exception]

    async def send(self, data: bytes) -> None:
        if "send" in self.errors:
            raise self.errors["send"]
        await super().send(data)

    async def next_message(self) -> ToPrimary | None:
        if "receive" in self.errors:
            raise self.errors["receive"]
        return await super().next_message()

    async def cancel(self, grace_s: float) -> None:  # type: ignore[override]
        await super().cancel(grace_s)
        if "cancel" in self.errors:
            raise self.errors["cancel"]


def in_the_connection(**errors: Exception) -> Fault:
    async def start(self: InProcessLauncher, spec: ReplicaSpec) -> ReplicaProcess:
        process = await REAL_START(self, spec)
        if spec.replica == 1:
            assert isinstance(process, VirtualProcess)
            process.__class__ = Faulty
            assert isinstance(process, Faulty)
            process.errors = errors
        return process

    return lambda patch: patch.setattr(InProcessLauncher, "start", start)


def in_the_manager(patch: pytest.MonkeyPatch) -> None:
    async def turn(_: NativeManager, replica: int) -> None:
        if replica == 1:
            raise KeyError(replica)

    patch.setattr(NativeManager, "turn", turn)


FAULTS: dict[str, tuple[Fault, str]] = {
    "no thread": (at_start(RuntimeError("can't start new thread")), "RuntimeError: can't start new thread"),
    "a limit of the system": (at_start(BlockingIOError(11, "no more processes")), "no more processes"),
    "a library of the launcher": (at_start(ZeroDivisionError("division")), "ZeroDivisionError: division"),
    "a broken socket": (in_the_connection(send=OSError(113, "No route to host")), "No route to host"),
    "a protocol of another kind": (in_the_connection(receive=UnicodeError("odd")), "UnicodeError: odd"),
    "an end that fails, too": (
        in_the_connection(receive=OSError(5, "first"), cancel=RuntimeError("second")),
        "OSError: [Errno 5] first",
    ),
    "a name that is not UTF-8": (at_start(FileNotFoundError(2, "no file", "\udcff")), r"'\udcff'"),
    "its manager": (in_the_manager, "KeyError: 1"),
}


def test_a_replica_that_takes_no_message_does_not_keep_the_run_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full pipe of a node that is gone: the last message to it, to stop, would wait for ever."""

    async def send(self: VirtualProcess, data: bytes) -> None:
        if isinstance(decode_to_agent(data), Stop):
            await asyncio.Event().wait()
        await real_send(self, data)

    real_send = VirtualProcess.send
    monkeypatch.setattr(VirtualProcess, "send", send)
    assert conduct_virtually(tmp_path / "run", configured()) == "deadline"
    assert len(bodies(tmp_path / "run", RunEnded)) == 1


async def never_read(*_: object) -> tuple[Beginning, ...]:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize("reason", ["deadline", "interrupted"])
def test_files_that_cannot_be_read_at_the_end_keep_no_replica_at_work(
    reason: EndReason, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_s, ended_s = list[float](), list[float]()
    real_send, real_run = VirtualProcess.send, Dispatcher.run

    async def send(self: VirtualProcess, data: bytes) -> None:
        if isinstance(decode_to_agent(data), Stop):
            stopped_s.append(asyncio.get_running_loop().time())
        await real_send(self, data)

    async def run(self: Dispatcher) -> EndReason:
        if reason == "interrupted":
            asyncio.get_running_loop().call_later(600, self.interrupt)
        ended = await real_run(self)
        ended_s.append(asyncio.get_running_loop().time())
        return ended

    monkeypatch.setattr(VirtualProcess, "send", send)
    monkeypatch.setattr(Dispatcher, "run", run)
    monkeypatch.setattr("primary.context._read_files", never_read)
    duration = "10m" if reason == "deadline" else "1h"
    config = configured(training__trainer="keras", run__duration=duration, storage__patience=300.0)
    assert conduct_virtually(tmp_path / "run", config) == reason
    assert stopped_s == [pytest.approx(600, abs=1)] * 2
    limit_s = config.run.stop_grace + 300 if reason == "deadline" else 0
    assert ended_s == [pytest.approx(600 + limit_s, abs=30)]
    (end,) = bodies(tmp_path / "run", RunEnded)
    assert isinstance(end, RunEnded)
    assert end.files == ()
    assert list(read_run(RunPaths(tmp_path / "run")).damages) == []


def test_the_end_of_a_run_reads_its_files(tmp_path: Path) -> None:
    assert conduct_virtually(tmp_path / "run", configured(training__trainer="keras")) == "deadline"
    (end,) = bodies(tmp_path / "run", RunEnded)
    assert isinstance(end, RunEnded)
    assert [name for name, _, _ in end.files] == ["system.json"]


def test_space_that_is_not_given_back_in_time_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    async def end() -> bool:
        await give_back(reserve)
        answered = answers.is_set()
        answers.set()  # the thread is waited for when the loop ends
        return answered

    reserve = Reserve(tmp_path / "reserve", 1)
    monkeypatch.setattr("primary.context.GIVING_BACK_S", 0.01)
    monkeypatch.setattr(reserve, "release", lambda: answers.wait(30))
    assert not asyncio.run(end())


@pytest.mark.parametrize("name", FAULTS)
def test_an_error_while_a_replica_is_served_costs_this_replica(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault, cause = FAULTS[name]
    fault(monkeypatch)
    shown = io.StringIO()
    assert conduct_virtually(tmp_path / "run", configured(replica__restarts=2), shown=shown) == "deadline"
    losses = lost(tmp_path / "run")
    assert [loss.replica for loss in losses] == [1, 1, 1], "it is restarted as after any other loss"
    assert all(cause in loss.reason for loss in losses)
    assert re.search(rf"^\d\d:\d\d:\d\d replica 1 LOST: {re.escape(losses[0].reason)}", shown.getvalue(), re.MULTILINE)
    assert len(bodies(tmp_path / "run", EpochCompleted)) >= 8, "of the other replica"
    (end,) = bodies(tmp_path / "run", RunEnded)
    assert isinstance(end, RunEnded)
    assert end.detail == "1 of 2 replicas lost: replica 1"


@pytest.mark.parametrize(("restart", "restarts", "starts"), [(False, 2, 1), (True, 2, 150), (True, 0, 1)])
def test_a_launcher_says_whether_it_may_be_asked_again(
    restart: bool, restarts: int, starts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that does not answer is asked to the end of the run, which few lines say."""
    tried, shown = 0, io.StringIO()

    async def start(self: InProcessLauncher, spec: ReplicaSpec) -> ReplicaProcess:
        nonlocal tried
        tried += spec.replica
        if spec.replica:
            raise LaunchError("no such host", restart=restart)
        return await REAL_START(self, spec)

    monkeypatch.setattr(InProcessLauncher, "start", start)
    config = configured(run__duration="2.5h", replica__restarts=restarts, simulated__epoch_seconds=600.0)
    assert conduct_virtually(tmp_path / "run", config, shown=shown) == "deadline"
    assert tried == pytest.approx(starts, rel=0.05)
    reasons = [loss.reason for loss in lost(tmp_path / "run")]
    assert reasons == ["no such host"] * (1 + starts // 60)
    lines = [line for line in shown.getvalue().splitlines() if "replica 1" in line]
    assert len(lines) == len(reasons) + (starts > 1) + 1, "and the end"


def test_a_node_that_comes_back_late_has_its_restarts_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that reboots refuses connections for longer than all restarts would take."""
    died_s: list[float] = []

    async def start(self: InProcessLauncher, spec: ReplicaSpec) -> ReplicaProcess:
        now_s = self._loop.time()
        if spec.replica == 1 and died_s and now_s < died_s[-1] + 900:
            raise LaunchError("connection refused", restart=True)
        process = await REAL_START(self, spec)
        if spec.replica == 1:
            assert isinstance(process, VirtualProcess)
            process._task.add_done_callback(lambda _: died_s.append(self._loop.time()))
            self._loop.call_later(600, process._task.cancel)
        return process

    monkeypatch.setattr(InProcessLauncher, "start", start)
    shown = io.StringIO()
    config = configured(run__duration="2h", replica__restarts=1)
    assert conduct_virtually(tmp_path / "run", config, shown=shown) == "deadline"
    assert [loss.reason.partition(";")[0] for loss in lost(tmp_path / "run")] == [
        "the replica ended with exit code 0",
        "connection refused",
        "the replica ended with exit code 0",
    ]
    assert shown.getvalue().count("replica 1 is started again") == 1
    assert shown.getvalue().count("replica 1 could be started") == 1


@pytest.mark.parametrize("record", [1, 2, 4, 12])
def test_records_that_cannot_be_written_end_the_run(
    record: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, count = HistoryWriter.append, 0

    def append(self: HistoryWriter, body: AnyBody, at_monotonic_ms: int | None = None) -> object:
        nonlocal count
        count += self.name == "primary-1"
        if self.name == "primary-1" and count >= record:
            raise StorageError(["the run can no longer be written: Input/output error"])
        return real(self, body, at_monotonic_ms)

    monkeypatch.setattr(HistoryWriter, "append", append)
    with pytest.raises(StorageError, match="run can no longer be written: Input/output error"):
        conduct_virtually(tmp_path / "run", configured())


def dying_every(seconds: float) -> Fault:
    async def start(self: InProcessLauncher, spec: ReplicaSpec) -> ReplicaProcess:
        process = await REAL_START(self, spec)
        if spec.replica == 1:
            assert isinstance(process, VirtualProcess)
            self._loop.call_later(seconds, process._task.cancel)
        return process

    return lambda patch: patch.setattr(InProcessLauncher, "start", start)


@pytest.mark.parametrize(("lives_s", "losses"), [(4000, 3), (3000, 2)])
def test_restarts_are_forgiven_after_an_hour_of_work(
    lives_s: float, losses: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying_every(lives_s)(monkeypatch)
    config = configured(run__duration="3.5h", replica__restarts=1, simulated__epoch_seconds=600.0)
    assert conduct_virtually(tmp_path / "run", config) == "deadline"
    assert len(lost(tmp_path / "run")) == losses


def slow_to_end(after_s: float, takes_s: float) -> Fault:
    """Lose the connection to replica 1 once; ending it takes long, and it trains on meanwhile."""
    struck = False

    class Slow(VirtualProcess):
        until: float

        async def next_message(self) -> ToPrimary | None:
            nonlocal struck
            if not struck and asyncio.get_running_loop().time() > self.until:
                struck = True
                raise OSError(113, "No route to host")
            return await super().next_message()

        async def cancel(self, grace_s: float) -> Exit:
            await asyncio.sleep(takes_s)
            return await super().cancel(grace_s)

    async def start(self: InProcessLauncher, spec: ReplicaSpec) -> ReplicaProcess:
        process = await REAL_START(self, spec)
        if spec.replica == 1:
            assert isinstance(process, VirtualProcess)
            process.__class__ = Slow
            assert isinstance(process, Slow)
            process.until = self._loop.time() + after_s
        return process

    return lambda patch: patch.setattr(InProcessLauncher, "start", start)


@pytest.mark.parametrize(("takes_s", "expected"), [(30, ["lost", "handed back"]), (600, ["completed"])])
def test_the_training_of_a_lost_replica_is_handed_back_when_it_has_ended_without_a_result(
    takes_s: float, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: dict[int, list[str]] = {}
    append, hand_back = HistoryWriter.append, AutomlRounds.lost

    def noting(self: HistoryWriter, body: AnyBody, at_monotonic_ms: int | None = None) -> object:
        if isinstance(body, TrialClosed):
            events.setdefault(body.trial, []).append(body.how)
        return append(self, body, at_monotonic_ms)

    def handing_back(self: AutomlRounds, replica: int, job: Job, began: bool) -> None:
        events.setdefault(job.trial, []).append("handed back")
        hand_back(self, replica, job, began)

    slow_to_end(100, takes_s)(monkeypatch)
    monkeypatch.setattr(HistoryWriter, "append", noting)
    monkeypatch.setattr(AutomlRounds, "lost", handing_back)
    config = configured(run__duration="20m", training__max_epochs=8)
    assert conduct_virtually(tmp_path / "run", config) == "deadline"
    (loss,) = lost(tmp_path / "run")
    assert "No route to host" in loss.reason
    jobs = [body for body in bodies(tmp_path / "run", JobIssued) if isinstance(body, JobIssued)]
    first = next(job.trial for job in jobs if job.replica == 1)
    assert events[first] == expected
    assert sum(job.resumes == first for job in jobs) == expected.count("handed back")


def test_a_primary_that_stood_still_says_so_and_loses_no_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(self: InProcessLauncher, spec: ReplicaSpec) -> ReplicaProcess:
        self._loop.call_later(300.5, self._loop.advance, 100 if spec.replica == 0 else 0)
        return await REAL_START(self, spec)

    monkeypatch.setattr(InProcessLauncher, "start", start)
    shown = io.StringIO()
    reason: EndReason = conduct_virtually(tmp_path / "run", configured(), shown=shown)
    assert reason == "deadline"
    assert lost(tmp_path / "run") == []
    assert "WARNING: the primary stood still for 100 s" in shown.getvalue()
