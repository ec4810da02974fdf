"""Several ranks on every framework: every image once, the weights of one rank, no process left."""

import asyncio
import os
import signal
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import psutil
import pytest

from aiperf.config.datasets import DIGITS
from aiperf.errors import TrialFailedError
from aiperf.facts import EpochFacts
from aiperf.run_directory.step_evidence import read_rows
from aiperf.wire.messages import (
    Begin,
    FromTrainer,
    TrainerEpoch,
    TrainerProgress,
)
from replica.agent.trial.rank_setup import RankSetup
from replica.agent.trial.trainer_process import TrainerProcess
from replica.trainer.__main__ import kind_of
from replica.trainer.frameworks import FRAMEWORKS
from tests.support.needs import need_open_mpi
from tests.support.processes import ask
from tests.support.trainings.installed import need_frameworks
from tests.support.trainings.ranks import MARK, config_with, ranks, request_for, train

SEVERAL = [
    ("tensorflow", "horovodrun", 32),
    ("tensorflow", "mpirun", 359),
    ("torch", "processes", 359),
    ("jax", "mpirun", 359),
]
"""Frameworks, starters of several ranks, and images of one of two ranks in a step.

1,437 = 2 x (2 x 359) + 1: in the third step the second rank has nothing.
"""


FOREIGN = {
    "OMPI_COMM_WORLD_RANK": "0",
    "OMPI_COMM_WORLD_SIZE": "1",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "PMIX_RANK": "0",
    "PMI_RANK": "0",
    "PMI_SIZE": "1",
    "SLURM_PROCID": "0",
    "HOROVOD_RANK": "0",
    "HOROVOD_SIZE": "1",
    "RANK": "0",
    "WORLD_SIZE": "1",
    "FLUX_TASK_RANK": "0",
    "MASTER_PORT": "1",
}
"""Numbers of the agent's own, of a site's `srun` or `mpirun`."""


def epochs_of(messages: list[FromTrainer]) -> list[EpochFacts]:
    return [message.facts for message in messages if isinstance(message, TrainerEpoch)]


Alone = Callable[[str, int], tuple[list[EpochFacts], Path]]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    """The epochs and the weights of one rank on a framework, with a batch of this size."""

    @lru_cache
    def train_alone(framework: str, batch_size: int) -> tuple[list[EpochFacts], Path]:
        folder = tmp_path_factory.mktemp("alone")
        request, weights = request_for(folder, batch_size=batch_size), folder / "w.npz"
        return epochs_of(asyncio.run(train(config_with("none", framework), 1, request, folder, weights))), weights

    return train_alone


@pytest.mark.parametrize(("framework", "starter", "batch_size"), SEVERAL)
def test_two_ranks_with_half_the_batch_train_what_one_rank_trains(
    framework: str, starter: str, batch_size: int, alone: Alone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in FOREIGN.items():
        monkeypatch.setenv(name, value)
    weights = tmp_path / "weights.npz"
    request = request_for(tmp_path, batch_size=batch_size)
    messages = asyncio.run(train(config_with(starter, framework), 2, request, tmp_path, weights))
    wanted, wanted_weights = alone(framework, 2 * batch_size)
    for one, two in zip(wanted, epochs_of(messages), strict=True):
        assert (two.images_trained, two.images_evaluated) == (DIGITS.train_images, DIGITS.validation_images)
        assert two.correct == one.correct, "validation over all ranks is that of one process"
        assert two.loss == pytest.approx(one.loss, rel=1e-4)
        assert two.learning_rate == one.learning_rate
        assert 0 < (two.correct_trained or 0) <= DIGITS.train_images
    with np.load(weights) as found, np.load(wanted_weights) as expected:
        for name in expected.files:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-3, atol=1e-5, err_msg=name)
    rows, wanted_rows = read_rows(weights.with_suffix(".rows")), read_rows(wanted_weights.with_suffix(".rows"))
    assert list(rows) == [1, 2]
    for epoch, found_rows in rows.items():
        for field in ("step", "loss", "gradient_norm"):
            np.testing.assert_allclose(found_rows[field], wanted_rows[epoch][field], rtol=1e-3)


def test_four_ranks_count_every_image_once_if_nothing_divides_evenly(tmp_path: Path) -> None:
    # 1,437 = 2 x (4 x 179) + 5 and 360 = 716 x 0 + 360: the last steps are of 2, 1, 1, 1 and of 90
    # images a rank.
    messages = asyncio.run(train(config_with("horovodrun"), 4, request_for(tmp_path, batch_size=179), tmp_path))
    for epoch in epochs_of(messages):
        assert (epoch.images_trained, epoch.images_evaluated) == (DIGITS.train_images, DIGITS.validation_images)
    counts = [m.facts.images_trained for m in messages if isinstance(m, TrainerProgress)]
    assert counts
    assert all(0 < count <= DIGITS.train_images for count in counts)


def test_ranks_without_images_take_part_in_the_last_step(tmp_path: Path) -> None:
    # 1,437 = 1 x (4 x 359) + 1: in the second step three ranks have nothing.
    request = request_for(tmp_path, batch_size=359, epochs=1)
    messages = asyncio.run(train(config_with("mpirun"), 4, request, tmp_path))
    assert [epoch.images_trained for epoch in epochs_of(messages)] == [DIGITS.train_images]


def rank_number(process: psutil.Process) -> int:
    environment = ask(process.environ, dict[str, str]())
    names = ("OMPI_COMM_WORLD_RANK", "HOROVOD_RANK", "RANK")
    return int(next((environment[name] for name in names if name in environment), "-1"))


@pytest.mark.parametrize(
    ("framework", "starter", "number", "victim"),
    [
        ("tensorflow", "horovodrun", signal.SIGKILL, 1),
        ("tensorflow", "mpirun", signal.SIGKILL, 0),
        ("tensorflow", "horovodrun", signal.SIGSTOP, 1),
        ("jax", "processes", signal.SIGKILL, 1),
        ("torch", "processes", signal.SIGKILL, 0),
        ("torch", "processes", signal.SIGSTOP, 1),
    ],
)
def test_a_rank_that_dies_or_hangs_ends_the_trial_and_all_ranks(
    framework: str, starter: str, number: signal.Signals, victim: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_frameworks(framework)
    if starter == "mpirun":
        need_open_mpi()
    monkeypatch.setenv(MARK, mark := str(tmp_path))

    async def scenario() -> None:
        request = request_for(tmp_path, epochs=1000, max_epochs=1000)
        log = tmp_path / "log"
        trainer = await TrainerProcess.start(RankSetup(config_with(starter, framework), 2), request, log)
        try:
            await trainer.until_ready(120)
            await trainer.begin(Begin(trial=1))
            hit = False
            with pytest.raises(TrialFailedError, match="hang" if number == signal.SIGSTOP else "rank_lost|crash"):
                async for message in trainer.messages(12 if number == signal.SIGSTOP else 60):
                    if isinstance(message, TrainerEpoch) and not hit:
                        os.kill(next(rank.pid for rank in ranks(mark) if rank_number(rank) == victim), number)
                        hit = True
        finally:
            await trainer.end()

    asyncio.run(scenario())
    assert ranks(mark) == []


def test_a_failure_of_another_rank_is_reported_with_its_reason(tmp_path: Path) -> None:
    # Every rank sees the same sum, so all fail alike; which of them is the first to say so is
    # chance.
    with pytest.raises(TrialFailedError, match=r"nan: (rank 1: )?the loss is (nan|inf) in epoch 1"):
        asyncio.run(train(config_with("horovodrun"), 2, request_for(tmp_path, learning_rate=3e38), tmp_path))


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Horovod has been shut down.", "rank_lost"),
        ("horovod_grouped_allreduce [gloo/transport/tcp/pair.cc:589] Connection reset by peer", "rank_lost"),
        ("something else", "error"),
    ],
)
def test_the_end_of_another_rank_is_recognised_in_the_errors_of_every_library(message: str, kind: str) -> None:
    unknown = type("UnknownError", (Exception,), {})
    assert kind_of(unknown(message), FRAMEWORKS.load("tensorflow")()) == kind
    assert kind_of(MemoryError(), None) == "out_of_memory"


def test_a_horovod_without_mpi_is_named_before_it_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    from replica.trainer.frameworks.tensorflow.horovod import HorovodCollective

    monkeypatch.setenv("HOROVOD_CONTROLLER", "mpi")
    monkeypatch.setattr("horovod.tensorflow.mpi_built", lambda: False)
    with pytest.raises(TrialFailedError, match="start: Horovod was built without MPI"):
        HorovodCollective(2)
