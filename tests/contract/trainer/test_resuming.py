"""A killed training and the one that resumes it: each leaves its own epochs, weights, evidence."""

import asyncio
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from aiperf.config.settings import RunConfig, load_config
from aiperf.errors import TrialFailedError
from aiperf.facts import EpochFacts
from aiperf.network.json_files import to_json
from aiperf.run_directory.step_evidence import hash_rows, hash_weights, read_rows
from aiperf.wire.messages import Begin, TrainerEpoch, TrainerPhase, TrainRequest
from replica.agent.trial.rank_setup import RankSetup
from replica.agent.trial.trainer_process import TrainerProcess
from replica.trainer.model.weights import epoch_of, load
from tests.support.trainings.programs import TINY, collect, epochs_of
from tests.support.trainings.ranks import config_with, train
from tests.support.trainings.ranks import request_for as ranks_request
from tests.support.trainings.requests import request_for


async def killed_in_epoch_3(config: RunConfig, request: TrainRequest, log: Path, begin: Begin) -> list[EpochFacts]:
    """The epochs of a training that is killed as soon as checkpoint and weights are on disk."""
    trainer = await TrainerProcess.start(RankSetup(config, 1, cpu_threads=2), request, log)
    seen = []
    try:
        await trainer.until_ready(120)
        await trainer.begin(begin)
        async for message in trainer.messages(120):
            if isinstance(message, TrainerEpoch):
                seen.append(message.facts)
            if len(seen) == 2 and isinstance(message, TrainerPhase) and message.phase == "train":
                while not all(Path(file or "").exists() for file in (begin.checkpoint_path, begin.save_weights_path)):
                    await asyncio.sleep(0.01)
                os.kill(trainer.pid, signal.SIGKILL)
    except TrialFailedError as error:
        assert error.kind == "crash"
    finally:
        await trainer.end()
    return seen


@pytest.mark.parametrize(
    ("framework", "starter", "ranks", "others"),
    [("tensorflow", "mpirun", 2, 1), ("torch", "processes", 1, 2), ("jax", "processes", 2, 3)],
)
def test_other_ranks_resume_with_the_rates_of_an_undisturbed_training(
    framework: str, starter: str, ranks: int, others: int, tmp_path: Path
) -> None:
    begin = Begin(trial=1, checkpoint_path=str(tmp_path / "checkpoint.npz"))
    found: dict[int, float] = {}
    for size, last in ((ranks, 3), (others, 6)):
        request = ranks_request(tmp_path, epochs=last, max_epochs=7, batch_size=128, learning_rate=0.1)
        seen = epochs_of(asyncio.run(train(config_with(starter, framework), size, request, tmp_path, begin=begin)))
        found |= {facts.epoch: facts.learning_rate for facts in seen}
        begin = replace(begin, restore=len(seen), states=states_of(seen))
    assert seen[0].epoch in (2, 3), "it was resumed"
    assert [found[epoch] for epoch in range(1, 7)] == [float(np.float32(0.1 * (1 - e / 7))) for e in range(6)]


def states_of(epochs: Iterable[EpochFacts]) -> tuple[str, ...]:
    """The hashes of the states that were kept after epochs."""
    return tuple(facts.state for facts in epochs if facts.state is not None)


def keras_weights(file: Path) -> list[Any]:
    """The kept weights of TINY, whose layers Keras keeps in the order of its nodes."""
    return [array for arrays in load(file, TINY).values() for array in arrays.values()]


def test_the_real_trainer_resumes_after_its_last_epoch(tmp_path: Path) -> None:
    config = load_config(overrides={"run.dataset": "digits"})
    (tmp_path / "architecture.json").write_text(to_json(TINY))
    request = request_for("digits", architecture_path=str(tmp_path / "architecture.json"), batch_size=64, epochs=4)
    log, kept, rows = tmp_path / "log", tmp_path / "weights.npz", (tmp_path / "1.rows", tmp_path / "2.rows")
    wanted = epochs_of(asyncio.run(collect(config, request, log)))
    begin = Begin(
        trial=1,
        checkpoint_path=str(tmp_path / "checkpoint.npz"),
        save_weights_path=str(kept),
        evidence_path=str(rows[0]),
    )
    first = asyncio.run(killed_in_epoch_3(config, request, log, begin))
    assert {1, 2} <= set(read_rows(rows[0]))
    assert epoch_of(kept) in {epoch.epoch for epoch in first}, "a killed training leaves its best weights"

    again = replace(begin, restore=len(first), states=states_of(first), evidence_path=str(rows[1]))
    resumed = epochs_of(asyncio.run(collect(config, request, log, again)))
    assert resumed[0].epoch in (2, 3, 4), "at least one epoch was kept"
    assert [facts.resumed for facts in resumed] == [first[resumed[0].epoch - 2].state, *[None] * (len(resumed) - 1)]
    assert resumed[-1].epoch == 4
    for found in resumed:
        expected = wanted[found.epoch - 1]
        assert found.learning_rate == pytest.approx(expected.learning_rate)
        assert found.loss == pytest.approx(expected.loss, rel=0.05)
    own = {number: hash_rows(epoch) for number, epoch in read_rows(rows[1]).items()}
    assert own == {epoch.epoch: epoch.evidence for epoch in resumed}
    # Epochs that were trained twice count as the resumed training had them.
    last = {epoch.epoch: epoch for epoch in (*first, *resumed)}
    best = last[epoch_of(kept) or 0]
    assert best.correct == max(epoch.correct or 0 for epoch in last.values())
    assert best.weights == hash_weights(keras_weights(kept))
