"""The agent's handle on the ranks of a training."""

import asyncio
import socket
import time
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from aiperf.config.settings import load_config
from aiperf.errors import TrialFailedError
from aiperf.processes import spawn_silent
from aiperf.wire.lines import encode, failures_in
from aiperf.wire.messages import (
    ArchitectureRequest,
    FromTrainer,
    Message,
    StorageWait,
    TrainerDone,
    TrainerFailed,
    TrainerPhase,
    TrainerWaits,
)
from replica.agent.storage import StorageReports
from replica.agent.trial.rank_setup import RankSetup
from replica.agent.trial.trainer_process import RankSocket, TrainerProcess

REQUEST = ArchitectureRequest(
    architecture_path="architecture.json",
    dataset="digits",
    batch_size=64,
    epochs=2,
    max_epochs=4,
    patience=9,
    seed=3,
    learning_rate=0.1,
    momentum=0.9,
    label_smoothing=0.1,
    precision="float32",
    compile="auto",
    progress_interval_s=1.0,
)


def test_failures_of_other_ranks_are_found_behind_a_prefix() -> None:
    text = (
        'noise\n[1]<stderr>:{"type":"failed","monotonic_ms":1,"name":"rank 1","kind":"out_of_memory","reason":"big"}\n'
        '{"type":"failed", torn'
    )
    assert [(f.name, f.kind, f.reason) for f in failures_in(text)] == [("rank 1", "out_of_memory", "big")]


@pytest.mark.parametrize(
    ("survived", "kind", "reason"),
    [
        ("", "out_of_memory", "rank 2: big"),
        ("the training goes on without group 1: group 1 ended with exit code 1\n", "rank_lost", "group 0 was killed"),
        ("the training goes on without group 2: group 2 was killed\n", "out_of_memory", "rank 2: big"),
    ],
    ids=["its own", "of a group that was lost before", "of another group than the lost one"],
)
def test_a_failure_that_a_training_has_survived_is_not_its_end(
    survived: str, kind: str, reason: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    failed = TrainerFailed(monotonic_ms=1, name="rank 2", group=1, kind="out_of_memory", reason="big")
    over = "the training in groups is over: group 0 was killed\n"
    log.write_bytes(encode(failed) + survived.encode() + over.encode())

    async def scenario() -> None:
        process = await spawn_silent(("sh", "-c", "exit 9"), tmp_path / "starter")
        trainer = TrainerProcess(process, RankSocket(REQUEST), log, several=False)
        with pytest.raises(TrialFailedError) as error:
            await anext(trainer.messages(3600))
        assert (error.value.kind, error.value.reason) == (kind, reason)

    asyncio.run(scenario())


def test_the_ranks_of_several_nodes_get_their_interface_and_hand_it_on() -> None:
    settings = {"run.dataset": "digits", "replica.rank_starter": "mpirun", "replica.interface": "ib0"}
    setup = RankSetup(load_config(overrides={**settings, "training.framework": "torch"}), 2, hosts=("a", "b"))
    words, variables = setup.command("channel")
    assert (variables["GLOO_SOCKET_IFNAME"], variables["NCCL_SOCKET_IFNAME"]) == ("ib0", "ib0")
    assert words[words.index("btl_tcp_if_include") + 1] == "ib0"
    assert {name for option, name in pairwise(words) if option == "-x"} >= variables.keys(), "mpirun hands on these"
    on_one_node = RankSetup(setup.config, 2)
    assert not {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"} & on_one_node.command("channel")[1].keys()


def test_a_cancellation_that_comes_with_a_message_is_not_lost(tmp_path: Path) -> None:
    async def scenario() -> bool:
        rank_socket = RankSocket(REQUEST)
        near, far = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=near)
        rank_socket.accept(reader, writer)
        process = await spawn_silent(("sleep", "60"), tmp_path / "log")
        trainer = TrainerProcess(process, rank_socket, tmp_path / "log", several=False)

        async def follow() -> None:
            async for _ in trainer.messages(60):
                pass

        following = asyncio.create_task(follow())
        await asyncio.sleep(0.01)
        reader.feed_data(encode(TrainerPhase(monotonic_ms=1, phase="train")))
        following.cancel()
        await asyncio.wait({following}, timeout=1)
        await trainer.end()
        far.close()
        return following.cancelled()

    assert asyncio.run(scenario())


@pytest.mark.parametrize(
    ("program", "said"),
    [("exit 120", "had trained ended with exit code 120"), ("sleep 3600", "has trained does not end"), ("exit 0", "")],
)
def test_what_happens_to_a_rank_after_the_end_of_its_training_is_no_failure(
    program: str, said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replica.agent.trial.trainer_process.EXIT_S", 0.01 if said.startswith("has") else 600)
    done = TrainerDone(monotonic_ms=1, early=False)
    late = TrainerFailed(monotonic_ms=2, kind="error", reason="while it ended")
    assert asyncio.run(messages_of(program, tmp_path, done, late)) == [done]
    assert said in caplog.text
    assert bool(said) == bool(caplog.records)


def test_a_rank_that_ends_before_its_training_is_a_crash(tmp_path: Path) -> None:
    phase = TrainerPhase(monotonic_ms=1, phase="train")
    with pytest.raises(TrialFailedError, match="ended with exit code 120") as error:
        asyncio.run(messages_of("exit 120", tmp_path, phase))
    assert error.value.kind == "crash"


async def messages_of(program: str, folder: Path, *sent: Message) -> list[FromTrainer]:
    """The messages of a training whose rank sends these, and runs a shell's program."""
    rank_socket = RankSocket(REQUEST)
    near, far = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=near)
    rank_socket.accept(reader, writer)
    process = await spawn_silent(("sh", "-c", program), folder / "log")
    trainer = TrainerProcess(process, rank_socket, folder / "log", several=False)
    reader.feed_data(b"".join(map(encode, sent)))
    reader.feed_eof()
    try:
        return [message async for message in trainer.messages(60)]
    finally:
        await trainer.end()
        far.close()


def test_a_wait_of_rank_0_is_told_once_and_ends_with_the_ranks(tmp_path: Path) -> None:
    sent = list[Message]()
    reports = StorageReports(sent.append)

    async def scenario() -> list[FromTrainer]:
        rank_socket = RankSocket(REQUEST)
        near, far = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=near)
        rank_socket.accept(reader, writer)
        process = await spawn_silent(("sleep", "60"), tmp_path / "log")
        trainer = TrainerProcess(process, rank_socket, tmp_path / "log", several=False, waits=reports)
        full, other = TrainerWaits(monotonic_ms=1, reason="weights: No space left"), reports.of("records")
        for message in (
            full,
            TrainerWaits(monotonic_ms=1, reason=""),
            TrainerPhase(monotonic_ms=1, phase="train"),
            full,
        ):
            reader.feed_data(encode(message))
        reader.feed_data(encode(TrainerPhase(monotonic_ms=2, phase="evaluate")))
        reports_of_it = trainer.messages(60)
        found = [await anext(reports_of_it), await anext(reports_of_it)]
        other("records: No space left")
        other("")
        await trainer.end()
        far.close()
        return found

    assert [type(message) for message in asyncio.run(scenario())] == [TrainerPhase] * 2
    reasons = [message.reason for message in sent if isinstance(message, StorageWait)]
    assert reasons == ["weights: No space left", ""] * 2, "and not once more for another source"


def test_the_socket_of_a_training_takes_one_rank_and_greets_it_with_the_request() -> None:
    async def scenario() -> tuple[bytes, bytes]:
        rank_socket = RankSocket(REQUEST)
        await rank_socket.listen()
        first_reader, first_writer = await asyncio.open_unix_connection(f"\0{rank_socket.name}")
        greeting = await first_reader.readline()
        second_reader, second_writer = await asyncio.open_unix_connection(f"\0{rank_socket.name}")
        refusal = await second_reader.read()
        for writer in (first_writer, second_writer):
            writer.close()
        rank_socket.close()
        return greeting, refusal

    assert asyncio.run(scenario()) == (encode(REQUEST), b"")


def test_an_error_at_the_connection_of_a_rank_fails_its_training(tmp_path: Path) -> None:
    unsendable = replace(REQUEST, data_dir="\udcff")

    async def scenario() -> None:
        rank_socket = RankSocket(unsendable)
        await rank_socket.listen()
        _, rank = await asyncio.open_unix_connection(f"\0{rank_socket.name}")
        process = await spawn_silent(("sleep", "60"), tmp_path / "log")
        trainer = TrainerProcess(process, rank_socket, tmp_path / "log", several=False)
        with pytest.raises(TrialFailedError, match=r"start: the trainer cannot be asked: .*surrogates not allowed"):
            await anext(trainer.messages(3600))
        await trainer.end()
        rank.close()

    asyncio.run(scenario())


def test_a_frozen_agent_reads_what_its_ranks_have_sent_before_it_calls_them_silent(tmp_path: Path) -> None:
    phase = TrainerPhase(monotonic_ms=1, phase="train")

    async def scenario() -> FromTrainer:
        rank_socket = RankSocket(REQUEST)
        await rank_socket.listen()
        _, rank = await asyncio.open_unix_connection(f"\0{rank_socket.name}")
        process = await spawn_silent(("sleep", "60"), tmp_path / "log")
        trainer = TrainerProcess(process, rank_socket, tmp_path / "log", several=False)

        def freeze() -> None:
            rank.write(encode(phase))
            time.sleep(1)  # the event loop stands still, as the process does under SIGSTOP

        asyncio.get_running_loop().call_later(0.1, freeze)
        try:
            return await anext(trainer.messages(0.4))
        finally:
            await trainer.end()
            rank.close()

    assert asyncio.run(scenario()) == phase
