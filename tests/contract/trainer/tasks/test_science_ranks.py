"""Scientific tasks on several ranks: what one rank trains, and the measures of one process."""

import asyncio
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from aiperf.config.dataset_manifest import Split
from aiperf.config.settings import load_config
from aiperf.facts import EpochFacts
from aiperf.wire.messages import Begin, TrainerEpoch
from replica.agent.trial.rank_setup import RankSetup
from replica.agent.trial.requests import ScienceTraining, science_request
from replica.agent.trial.trainer_process import TrainerProcess
from replica.trainer.science import gather_rows
from tests.support.trainings.installed import need_frameworks
from workloads.datasets.science.synthesize import ScienceRecipe, synthesize
from workloads.science import SCIENCE


@dataclass(frozen=True)
class Work:
    """A workload on few examples."""

    workload: str
    kind: str
    size: int
    images: int = 301
    validation: int = 51
    test: int = 0


# Networks without batch normalisation, whose statistics are those of a rank's own examples.
JOBS = [
    (Work("hepcnn", "hep", 32, test=23), "tensorflow", "horovodrun"),
    # Images with labels and without are on both ranks.
    (Work("climate-semi", "ewa", 96, images=19, validation=5), "torch", "processes"),
]

FRESH = Begin(trial=1)


def train(folder: Path, work: Work, framework: str, starter: str, ranks: int, begin: Begin = FRESH) -> list[EpochFacts]:
    """The epochs of a training, or with a new checkpoint only the first, whose state is kept."""
    need_frameworks(framework)
    chosen = {
        "replica.rank_starter": starter,
        "training.framework": framework,
        "run.suite": "science",
        "science.workloads": [work.workload],
        "science.size": "rehearsal",
        "science.stop": "deadline",
    }
    config = load_config(overrides=chosen)
    # One step an epoch, so that all ranks together have the batch of one; Adam's rate grows with
    # the square root of the ranks.
    values = {"batch_size": -(-work.images // ranks), "learning_rate": 0.01 / sqrt(ranks), "max_epochs": 3}
    request = science_request(config, ScienceTraining(work.workload, values, 3, "float32", str(folder)))

    kept = Path(begin.checkpoint_path) if begin.checkpoint_path and not begin.restore else None

    async def training() -> list[EpochFacts]:
        found: list[EpochFacts] = []
        trainer = await TrainerProcess.start(RankSetup(config, ranks), request, folder / f"{ranks}.log")
        try:
            await trainer.until_ready(200)
            await trainer.begin(begin)
            async for message in trainer.messages(200):
                if isinstance(message, TrainerEpoch):
                    found.append(message.facts)
                    if kept is not None and message.facts.state is not None:
                        while not kept.exists():  # it is written in the background, after the message
                            await asyncio.sleep(0.01)
                        break
            return found
        finally:
            await trainer.end()

    return asyncio.run(training())


@pytest.mark.parametrize(("work", "framework", "starter"), JOBS, ids=lambda value: getattr(value, "workload", value))
def test_two_ranks_train_and_measure_what_one_rank_does(
    work: Work, framework: str, starter: str, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    images: dict[Split, int] = {"train": work.images, "validation": work.validation}
    images |= {"test": work.test} if work.test else {}
    synthesize(ScienceRecipe(work.kind, images, work.size, 1), folder, lambda *_: None, 0)
    one = train(folder, work, framework, "none", 1)
    two = train(folder, work, framework, starter, 2)
    assert len(one) == len(two) == 3
    for alone, both in zip(one, two, strict=True):
        assert (both.images_trained, both.images_validated) == (work.images, work.validation)
        assert both.loss == pytest.approx(alone.loss, rel=1e-4)
        if work.workload == "hepcnn":
            assert all(0 < (each.correct_trained or 0) <= work.images for each in (alone, both))
        else:
            assert (alone.correct_trained, both.correct_trained) == (None, None), "it does not classify"
        assert smooth(both.measures) == pytest.approx(smooth(alone.measures), rel=1e-3, abs=1e-3)
    assert [(each.training_measures, each.sampled_images) for each in two[:2]] == [(None, None)] * 2
    assert two[2].sampled_images == min(work.images, work.validation)
    assert smooth(two[2].training_measures) == pytest.approx(smooth(one[2].training_measures), rel=1e-3, abs=1e-3)
    assert [each.test_images for each in two] == [None, None, work.test or None]
    assert [each.test_measures for each in two[:2]] == [None, None]
    if work.test:
        assert smooth(two[2].test_measures) == pytest.approx(smooth(one[2].test_measures), rel=1e-3, abs=1e-3)
        assert two[2].test_measures != two[2].measures, "of other examples than those that validate"
    assert [each.exchange_s for each in one] == [None] * 3, "a rank alone exchanges nothing"
    assert all(each.exchange_s is not None and each.exchange_s >= 0 for each in two)
    sampled = min(work.images, work.validation)
    assert [each.images_evaluated - work.validation for each in two] == [0, 0, sampled]


def test_other_ranks_resume_with_the_rates_of_an_undisturbed_training(tmp_path: Path) -> None:
    work, folder = Work("hepcnn", "hep", 32), tmp_path / "data"
    synthesize(ScienceRecipe("hep", {"train": 31, "validation": 5}, work.size, 1), folder, lambda *_: None, 0)
    begin = Begin(trial=1, checkpoint_path=str(tmp_path / "checkpoint.npz"))
    (first,) = train(folder, work, "torch", "processes", 2, begin)
    again = replace(begin, restore=1, states=(str(first.state),), first_ranks=2)
    rest = train(folder, work, "torch", "none", 1, again)
    assert (rest[0].epoch, rest[0].resumed) == (2, first.state)
    schedule = SCIENCE.load("hepcnn").size("rehearsal").schedule
    asked = [0.01 / sqrt(2), 0.01, 0.01]
    expected = [float(np.float32(rate * sqrt(2) * schedule.factor(done / 3))) for done, rate in enumerate(asked)]
    assert [facts.learning_rate for facts in (first, *rest)] == expected


def smooth(measures: dict[str, float] | None) -> dict[str, float]:
    """The measures without average precision, which jumps where two scores change places."""
    found = {name: value for name, value in (measures or {}).items() if not name.startswith("map@")}
    assert found
    return found


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
