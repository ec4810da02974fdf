"""Getting ahead: forecast, next assignment, warm ranks; and the accelerators of a node."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aiperf.config.settings import load_config
from aiperf.errors import TrialFailedError
from aiperf.messages import Begin, FromTrainer, Job, Phase, TrainerPhase, TrainRequest, encode
from aiperf.processes import spawn_silent
from aiperf.rules.rounds import epochs_left
from aiperf.rules.schedule import Assignment, next_assignment
from replica.machine.accelerators import Accelerator, best_precision, share_of, visible
from replica.search.planner import Memory, Planner
from replica.trainer.settings import TRAINING_NICENESS
from replica.trainer.starters import choose_starter
from replica.trial.context import ReplicaContext
from replica.trial.forecast import Forecast
from replica.trial.rank_socket import RankSocket
from replica.trial.standby import Standby
from replica.trial.trainer import Trainer
from replica.trial.trainer_process import TrainerProcess, failures_in
from tests.helpers import HandMadeRun

REQUEST = TrainRequest(
    architecture_path="architecture.json", dataset="digits", batch_size=64, epochs=2, max_epochs=4, patience=9, seed=3,
    learning_rate=0.1, momentum=0.9, label_smoothing=0.1, precision="float32", xla=False, progress_interval_s=1.0,
)  # fmt: skip


def test_the_end_is_forecast_from_the_pace_and_the_patience() -> None:
    forecast = Forecast(epochs=10, patience=6)
    assert forecast.seconds_left(50.0) is None
    forecast.began(100.0)
    forecast.began(999.0)
    assert forecast.seconds_left(101.0) is None
    forecast.reached(105.0, [], 0.5)
    # Ten seconds an epoch; after six epochs without any improvement it ends: 5.5 epochs to go, 2 s
    # later.
    assert forecast.seconds_left(107.0) == pytest.approx(53.0)
    forecast.reached(140.0, [0.1, 0.5, 0.4, 0.45], 0.0)
    # Two epochs without an improvement: the earliest end is at epoch 8.
    assert forecast.seconds_left(140.0) == pytest.approx(40.0)
    assert forecast.seconds_left(1000.0) == 0.0


def test_epochs_left_is_what_patience_or_the_round_allows() -> None:
    assert epochs_left([], 4, 6) == 4
    assert epochs_left([0.1, 0.2, 0.2, 0.2], 60, 6) == 4
    assert epochs_left([0.1, 0.2, 0.3], 4, 6) == 1
    assert epochs_left([0.2, 0.1, 0.1], 60, 2) == 0


def test_a_failed_training_is_tried_again_with_another_seed() -> None:
    config = load_config()
    again = next_assignment(Assignment(2), 7, False, config.search)
    assert (again.round, again.point, again.attempt) == (2, 0, 1)
    seeds = {
        step.seed(config, replica)
        for step in (Assignment(2), again, Assignment(3), Assignment(2, 1, 7))
        for replica in (0, 1)
    }
    assert len(seeds) == 8
    assert next_assignment(again, 8, True, config.search) == Assignment(3)
    assert next_assignment(Assignment(4, 1, 9), 10, False, config.search) == Assignment(4, 2, 9), (
        "a failed point is not repeated"
    )


def gpu(index: int, capability: tuple[int, int] = (9, 0)) -> Accelerator:
    return Accelerator(index, "GPU", 80 << 30, capability, "570")


def test_replicas_of_a_node_share_its_accelerators() -> None:
    node = [gpu(n) for n in range(4)]
    assert [[a.index for a in share_of(node, replica, 2)] for replica in (0, 1, 2)] == [[0, 2], [1, 3], [0, 2]]
    assert [[a.index for a in share_of(node[:1], replica, 2)] for replica in (0, 1)] == [[0], [0]]
    assert share_of([], 0, 2) == ()
    assert [a.index for a in visible(node, None)] == [0, 1, 2, 3]
    assert [a.index for a in visible(node, "2, 0")] == [2, 0]
    assert [a.index for a in visible(node, "")] == []
    assert len(visible(node, "GPU-1234,GPU-5678")) == 2


def test_the_precision_is_the_fastest_of_the_weakest_accelerator() -> None:
    assert best_precision([gpu(0, (9, 0)), gpu(1, (8, 0))]) == "mixed_bfloat16"
    assert best_precision([gpu(0, (9, 0)), gpu(1, (7, 5))]) == "mixed_float16"
    assert best_precision([gpu(0, (6, 1))]) == "float32"
    assert best_precision([], frozenset({"avx2"})) == "float32"
    assert best_precision([], frozenset({"avx2", "avx512_bf16"})) == "mixed_bfloat16"


def test_the_starter_fits_the_ranks() -> None:
    assert choose_starter("auto", 1, 1) == "none"
    assert choose_starter("auto", 4, 1) == "horovodrun"
    assert choose_starter("mpirun", 1, 1) == "mpirun"


def test_failures_of_other_ranks_are_found_behind_a_prefix() -> None:
    text = (
        'noise\n[1]<stderr>:{"type":"failed","monotonic_ms":1,"rank":1,"kind":"out_of_memory","reason":"big"}\n'
        '{"type":"failed", torn'
    )
    assert [(f.rank, f.kind, f.reason) for f in failures_in(text)] == [(1, "out_of_memory", "big")]


def test_ranks_that_train_give_way_to_ranks_that_warm_up() -> None:
    code = (
        "import os, threading, time; from replica.trainer.settings import yield_to_warm_up as y; "
        "threading.Thread(target=time.sleep, args=(2,), daemon=True).start(); y(); "
        "print({os.getpriority(os.PRIO_PROCESS, int(t)) for t in os.listdir('/proc/self/task')})"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == str({TRAINING_NICENESS})


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


class RehearsedTrainer(Trainer):
    """A trainer in process: it warms up phase by phase as the test allows, and trains nothing."""

    def __init__(self, *phases: Phase, fails: bool = False) -> None:
        self.step = asyncio.Event()
        self.ended = False
        self._phases = phases
        self._fails = fails

    async def warm_up(self, silence_s: float) -> AsyncIterator[TrainerPhase]:
        for phase in self._phases:
            await self.step.wait()
            self.step.clear()
            yield TrainerPhase(monotonic_ms=1, phase=phase)
        if self._fails:
            raise TrialFailedError("build", "no room")

    async def begin(self, message: Begin) -> None:
        raise NotImplementedError

    def messages(self, silence_s: float) -> AsyncIterator[FromTrainer]:
        raise NotImplementedError

    def rename_log(self, log: Path) -> None:
        raise NotImplementedError

    async def end(self) -> None:
        self.ended = True


def replica_with(run: HandMadeRun, *trainers: RehearsedTrainer) -> ReplicaContext:
    coming = iter(trainers)

    async def start(request: TrainRequest, log: Path) -> Trainer:
        return next(coming)

    planner = Planner(0, run.config, run.paths, Memory())
    return ReplicaContext(0, run.config, run.paths, run.replicas[0], planner, 1, start, "float32", lambda message: None)


@pytest.fixture
def run(tmp_path: Path) -> HandMadeRun:
    return HandMadeRun(tmp_path).at(0).release(100)


FIRST = Job(trial=1, round=1, seed=1)


def test_phases_of_a_warm_up_reach_the_trial_that_takes_the_ranks_in_the_middle(run: HandMadeRun) -> None:
    async def scenario() -> tuple[Phase, list[Phase]]:
        trainer = RehearsedTrainer("start", "build", "train")
        ranks = await Standby(replica_with(run, trainer)).take(FIRST)
        trainer.step.set()
        while ranks.phase != "start" or trainer.step.is_set():
            await asyncio.sleep(0)
        taken_in = ranks.phase
        seen: list[Phase] = []
        trainer.step.set()
        async for message in ranks.coming_phases():
            seen.append(message.phase)
            trainer.step.set()
        assert ranks.ready
        await ranks.drop()
        assert trainer.ended
        return taken_in, seen

    assert asyncio.run(scenario()) == ("start", ["build", "train"])


def test_warm_ranks_are_taken_by_the_job_that_they_are_for_and_dropped_for_another(run: HandMadeRun) -> None:
    async def scenario() -> None:
        warm, fresh = RehearsedTrainer(), RehearsedTrainer()
        standby = Standby(replica_with(run, warm, fresh))
        await standby.warm_up(FIRST)
        other = FIRST.model_copy(update={"seed": 2})
        taken = await standby.take(other)
        assert warm.ended
        assert taken.trainer is fresh
        await taken.drop()

    async def fitting() -> None:
        warm = RehearsedTrainer()
        standby = Standby(replica_with(run, warm))
        await standby.warm_up(FIRST)
        taken = await standby.take(FIRST)
        assert taken.trainer is warm
        standby.learn(taken)
        assert standby.lead_s == 0.0, "its clock stood still"
        await taken.drop()

    asyncio.run(scenario())
    asyncio.run(fitting())


def test_ranks_whose_warm_up_failed_are_not_taken(run: HandMadeRun, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        broken, fresh = RehearsedTrainer(fails=True), RehearsedTrainer()
        standby = Standby(replica_with(run, broken, fresh))
        await standby.warm_up(FIRST)
        assert "no ranks are warm for round 1: build: no room" in caplog.text
        taken = await standby.take(FIRST)
        assert broken.ended
        assert taken.trainer is fresh
        await taken.drop()

    asyncio.run(scenario())
