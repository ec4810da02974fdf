"""Scientific tasks on several ranks: what one rank trains, and the measures of one process."""

from __future__ import annotations

import asyncio
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiperf.config.settings import load_config
from aiperf.facts import EpochFacts
from aiperf.messages import Begin, TrainerEpoch
from replica.datasets.science.synthesize import ScienceRecipe, synthesize
from replica.trainer.science.measured import gather_rows
from replica.trial.requests import ScienceTraining, science_request
from replica.trial.trainer_process import RankSetup, TrainerProcess
from testing.trainings.installed import need_frameworks

IMAGES, VALIDATION = 301, 51

# Networks without batch normalisation, whose statistics are those of a rank's own examples.
JOBS = [("hepcnn", "hep", 32, "tensorflow", "horovodrun"), ("cosmoflow", "cos", 16, "torch", "processes")]


def train(folder: Path, workload: str, framework: str, starter: str, ranks: int) -> list[EpochFacts]:
    need_frameworks(framework)
    chosen = {"replica.rank_starter": starter, "training.framework": framework, "run.suite": "science",
              "science.workloads": [workload], "science.size": "rehearsal", "science.stop": "deadline"}  # fmt: skip
    config = load_config(overrides=chosen)
    # One step an epoch, so that all ranks together have the batch of one; Adam's rate grows with
    # the square root of the ranks.
    values = {"batch_size": -(-IMAGES // ranks), "learning_rate": 0.01 / sqrt(ranks), "max_epochs": 3}
    request = science_request(config, ScienceTraining(workload, values, 3, "float32", str(folder)))

    async def training() -> list[EpochFacts]:
        trainer = await TrainerProcess.start(RankSetup(config, ranks), request, folder / f"{ranks}.log")
        try:
            await trainer.until_ready(200)
            await trainer.begin(Begin(trial=1))
            return [message.facts async for message in trainer.messages(200) if isinstance(message, TrainerEpoch)]
        finally:
            await trainer.end()

    return asyncio.run(training())


@pytest.mark.parametrize(("workload", "kind", "size", "framework", "starter"), JOBS)
def test_two_ranks_train_and_measure_what_one_rank_does(
    workload: str, kind: str, size: int, framework: str, starter: str, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    synthesize(ScienceRecipe(kind, {"train": IMAGES, "validation": VALIDATION}, size, 1), folder, lambda *_: None, 0)
    one = train(folder, workload, framework, "none", 1)
    two = train(folder, workload, framework, starter, 2)
    assert len(one) == len(two) == 3
    for alone, both in zip(one, two, strict=True):
        assert (both.images_trained, both.images_evaluated) == (IMAGES, VALIDATION)
        assert both.loss == pytest.approx(alone.loss, rel=1e-4)
        assert alone.measures is not None
        assert both.measures == pytest.approx(alone.measures, rel=1e-3, abs=1e-3)


class Ranks:
    """Two ranks of which the other one has `others`."""

    size = 2

    def __init__(self, rank: int, others: list[Any]) -> None:
        self.rank = rank
        self._others = others

    def sum_tensors(self, tensors: list[Any], name: str) -> list[Any]:
        return [np.asarray(tensors[0]) + self._others.pop(0)]


def test_the_rows_of_all_ranks_are_gathered_exactly() -> None:
    rng = np.random.default_rng(1)
    mine, other = (rng.standard_normal((count, 4)).astype(np.float32) for count in (3, 2))
    placed = np.zeros((5, 4), np.float32)
    placed[3:] = other
    collective: Any = Ranks(0, [np.array([0.0, 2.0], np.float32), placed])
    np.testing.assert_array_equal(gather_rows(collective, mine), np.concatenate([mine, other]))
