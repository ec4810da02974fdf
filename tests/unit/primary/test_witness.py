"""The primary's witness: every trial is closed once, and contradictions are not recorded."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from aiperf.errors import StorageError
from aiperf.records.bodies import AnyBody, EpochWitnessed, TrialClosed
from aiperf.records.history_files import HistoryReader
from aiperf.wire.lines import encode
from aiperf.wire.messages import CANCELLED, Closing, Finished, Message, Recorded, Started
from primary.launchers import Exit, ReplicaSpec
from primary.replica_link import JobEvent, ReplicaGoneError, ReplicaLink
from primary.witness import How, Witness
from tests.support.hand_made import HandMadeRun

FIRST, SECOND = "1" * 64, "2" * 64


class Left:
    """A replica that has ended and left messages in its pipe, which may be held open."""

    def __init__(self, *messages: Message, held_open: bool = False) -> None:
        self._lines = [b"not a message\n", *map(encode, messages)]
        self._held_open = held_open

    async def send(self, data: bytes) -> None: ...

    async def receive(self) -> bytes:
        if not self._lines and self._held_open:
            await asyncio.Event().wait()
        return self._lines.pop(0) if self._lines else b""

    async def wait(self) -> Exit:
        return Exit(0)

    async def explain(self) -> str:
        return ""

    async def cancel(self, grace_s: float) -> Exit:
        return Exit(0)


def working(run: HandMadeRun, stopping: bool = False) -> Witness:
    """A witness of a replica that works on trial 7."""
    end = asyncio.Event()
    if stopping:
        end.set()
    witness = Witness(run.primary, end)
    witness.welcome("replica-0000-1")
    witness.issued(7)
    return witness


def bodies(run: HandMadeRun) -> list[AnyBody]:
    return [record.body for record in HistoryReader(run.paths).read_new().records]


def closed(how: How, head: tuple[int, str] | None) -> TrialClosed:
    sequence, digest = head or (None, None)
    return TrialClosed(trial=7, how=how, writer="replica-0000-1", sequence=sequence, digest=digest)


def finished(kind: str = "", trial: int = 7, sequence: int = 5) -> Finished:
    return Finished(trial=trial, completed=not kind, reason="", kind=kind, sequence=sequence, digest=SECOND)


@pytest.mark.parametrize(("kind", "how"), [("", "completed"), ("crash", "failed"), (CANCELLED, "cancelled")])
def test_epochs_and_the_end_of_a_trial_are_recorded_with_what_was_heard(tmp_path: Path, kind: str, how: How) -> None:
    run = HandMadeRun(tmp_path)
    witness = working(run)
    witness.take(Recorded(trial=7, epoch=1, sequence=3, digest=FIRST))
    witness.take(finished(kind))
    asyncio.run(witness.conclude(None))
    epoch = EpochWitnessed(trial=7, epoch=1, writer="replica-0000-1", sequence=3, digest=FIRST)
    assert bodies(run) == [epoch, closed(how, (5, SECOND))]


def test_a_start_among_the_last_words_is_heard(tmp_path: Path) -> None:
    run, heard = HandMadeRun(tmp_path), list[Message]()
    witness = working(run)
    witness.on_started = heard.append
    start = Started(
        trial=7,
        architecture="a" * 16,
        parent=None,
        hyperparameters={},
        epochs=1,
        operations_per_image=1,
        depth=1,
        weights=1,
    )
    link = ReplicaLink(Left(start, finished("crash")), ReplicaSpec(0, ("x",), tmp_path / "log"), 1.0)
    asyncio.run(witness.conclude(link))
    assert heard == [start]
    assert bodies(run) == [closed("failed", (5, SECOND))]


@pytest.mark.parametrize(
    ("messages", "stopping", "last"),
    [
        ((), False, closed("lost", None)),
        ((), True, closed("lost", None)),
        ((Closing(trial=None, sequence=None, digest=None),), True, closed("stopped", None)),
        ((Closing(trial=7, sequence=4, digest=FIRST),), True, closed("stopped", (4, FIRST))),
        ((Closing(trial=7, sequence=4, digest=FIRST),), False, closed("lost", (4, FIRST))),
        ((Recorded(trial=7, epoch=1, sequence=3, digest=FIRST),), True, closed("lost", (3, FIRST))),
        ((finished(), Closing(trial=None, sequence=6, digest=FIRST)), True, closed("completed", (5, SECOND))),
    ],
)
def test_what_an_ended_replica_has_left_in_its_pipe_is_recorded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    messages: tuple[Message, ...],
    stopping: bool,
    last: TrialClosed,
) -> None:
    monkeypatch.setattr("primary.witness.LAST_WORDS_S", 0.05)

    async def conclude_twice(witness: Witness, held_open: bool) -> None:
        link = ReplicaLink(Left(*messages, held_open=held_open), ReplicaSpec(0, ("x",), tmp_path / "log"), 1.0)
        await witness.conclude(link)
        await witness.conclude(link)

    for held_open in (False, True):
        run = HandMadeRun(tmp_path / str(held_open))
        asyncio.run(conclude_twice(working(run, stopping), held_open))
        epochs = sum(isinstance(body, EpochWitnessed) for body in bodies(run))
        assert [body for body in bodies(run) if isinstance(body, TrialClosed)] == [last]
        assert epochs == sum(isinstance(message, Recorded) for message in messages)


@pytest.mark.parametrize(
    "message",
    [
        Recorded(trial=8, epoch=2, sequence=6, digest=SECOND),
        Recorded(trial=7, epoch=1, sequence=6, digest=SECOND),
        Recorded(trial=7, epoch=2, sequence=2, digest=SECOND),
        Recorded(trial=7, epoch=2, sequence=3, digest=SECOND),
        Recorded(trial=7, epoch=2, sequence=6, digest="x"),
        finished(trial=8),
        finished(sequence=2),
        Closing(trial=8, sequence=6, digest=SECOND),
        Closing(trial=7, sequence=3, digest=SECOND),
    ],
)
def test_a_report_that_contradicts_the_job_or_an_earlier_one_costs_the_replica(
    tmp_path: Path, message: JobEvent
) -> None:
    run = HandMadeRun(tmp_path)
    witness = working(run)
    witness.take(Recorded(trial=7, epoch=1, sequence=3, digest=FIRST))
    with pytest.raises(ReplicaGoneError, match="the replica reports"):
        witness.take(message)
    asyncio.run(witness.conclude(None))
    assert bodies(run)[1:] == [closed("lost", (3, FIRST))]


def test_a_report_between_two_jobs_is_a_contradiction(tmp_path: Path) -> None:
    witness = working(HandMadeRun(tmp_path))
    witness.take(finished())
    with pytest.raises(ReplicaGoneError, match="no trial is in progress"):
        witness.take(Recorded(trial=7, epoch=2, sequence=6, digest=SECOND))


def test_a_restarted_replica_begins_another_file(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path)
    witness = working(run)
    witness.take(finished(sequence=50))
    witness.welcome("replica-0000-2")
    witness.issued(8)
    witness.take(Recorded(trial=8, epoch=1, sequence=3, digest=FIRST))
    assert bodies(run)[1:] == [EpochWitnessed(trial=8, epoch=1, writer="replica-0000-2", sequence=3, digest=FIRST)]


def test_a_primary_that_cannot_record_says_so_with_every_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = HandMadeRun(tmp_path)
    witnesses = [working(run) for _ in range(3)]

    def refuse(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "write", refuse)
    for witness in witnesses:
        with pytest.raises(StorageError, match="no space"):
            witness.take(finished())
