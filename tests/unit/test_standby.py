"""When and what to prepare: the forecast of a trial's end, the job that comes next, the accelerators of a node."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from aiperf.config.settings import load_config
from aiperf.messages import TrainerPhase, encode
from aiperf.rules.rounds import epochs_left
from aiperf.rules.schedule import Step, next_step
from replica.machine.accelerators import Accelerator, best_precision, share_of, visible
from replica.trainer.settings import TRAINING_NICENESS
from replica.trainer.starters import choose_starter
from replica.trial.forecast import Forecast
from replica.trial.trainer_process import TrainerProcess, failures_in


def test_the_end_is_forecast_from_the_pace_and_the_patience() -> None:
    forecast = Forecast(epochs=10, patience=6)
    assert forecast.seconds_left(50.0) is None
    forecast.began(100.0)
    forecast.began(999.0)
    assert forecast.seconds_left(101.0) is None
    forecast.reached(105.0, [], 0.5)
    # Ten seconds an epoch; after six epochs without any improvement it ends: 5.5 epochs to go, 2 s later.
    assert forecast.seconds_left(107.0) == pytest.approx(53.0)
    forecast.reached(140.0, [0.1, 0.5, 0.4, 0.45], 0.0)
    # Two epochs in vain: the earliest end is at epoch 8.
    assert forecast.seconds_left(140.0) == pytest.approx(40.0)
    assert forecast.seconds_left(1000.0) == 0.0


def test_epochs_left_is_what_patience_or_the_round_allows() -> None:
    assert epochs_left([], 4, 6) == 4
    assert epochs_left([0.1, 0.2, 0.2, 0.2], 60, 6) == 4
    assert epochs_left([0.1, 0.2, 0.3], 4, 6) == 1
    assert epochs_left([0.2, 0.1, 0.1], 60, 2) == 0


def test_a_failed_training_is_tried_again_with_another_seed() -> None:
    config = load_config()
    again = next_step(Step(2), 7, False, config.search)
    assert (again.round, again.point, again.attempt) == (2, 0, 1)
    seeds = {step.seed(config, replica) for step in (Step(2), again, Step(3), Step(2, 1, 7)) for replica in (0, 1)}
    assert len(seeds) == 8
    assert next_step(again, 8, True, config.search) == Step(3)
    assert next_step(Step(4, 1, 9), 10, False, config.search) == Step(4, 2, 9), "a failed point is not repeated"


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


def test_the_precision_is_what_the_weakest_accelerator_does_best() -> None:
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


def test_ranks_that_train_let_preparations_go_first() -> None:
    code = (
        "import os, threading, time; from replica.trainer.settings import yield_to_warm_up as y; "
        "threading.Thread(target=time.sleep, args=(2,), daemon=True).start(); y(); "
        "print({os.getpriority(os.PRIO_PROCESS, int(t)) for t in os.listdir('/proc/self/task')})"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == str({TRAINING_NICENESS})


def test_a_cancellation_that_comes_with_a_message_is_not_lost(tmp_path: Path) -> None:
    async def scenario() -> bool:
        trainer = TrainerProcess(tmp_path / "log", several=False)
        reader = asyncio.StreamReader()
        trainer._connected.set_result((reader, cast(asyncio.StreamWriter, None)))

        async def follow() -> None:
            async for _ in trainer.messages(60):
                pass

        following = asyncio.create_task(follow())
        await asyncio.sleep(0.01)
        reader.feed_data(encode(TrainerPhase(monotonic_ms=1, phase="train")))
        following.cancel()
        await asyncio.wait({following}, timeout=1)
        return following.cancelled()

    assert asyncio.run(scenario())
