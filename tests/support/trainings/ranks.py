"""Trainings by several ranks, and the processes of their ranks."""

from pathlib import Path
from typing import Any

import psutil

from aiperf.config.settings import RunConfig, load_config
from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import Conv, Dense, Flatten, Input, ReLU, Softmax
from aiperf.wire.messages import ArchitectureRequest, Begin, FromTrainer
from replica.agent.trial.rank_setup import RankSetup
from replica.agent.trial.trainer_process import TrainerProcess
from tests.support.needs import need_open_mpi
from tests.support.processes import ask, processes_with, words_of
from tests.support.trainings.installed import need_frameworks
from tests.support.trainings.requests import request_of

# Without batch normalisation, whose statistics are those of a rank's own images.
PLAIN = Architecture(
    (
        Node("in", Input(32, 32, 3)),
        Node("conv", Conv(8, stride=(4, 4), bias=True), ("in",)),
        Node("relu", ReLU(), ("conv",)),
        Node("flat", Flatten(), ("relu",)),
        Node("fc", Dense(10), ("flat",)),
        Node("softmax", Softmax(), ("fc",)),
    )
)


MARK = "AIPERF_TEST_OF_RANKS"
"""Variable by which a test knows its own ranks: other tests may train at the same time."""


def ranks(mark: str) -> list[psutil.Process]:
    """The rank processes of the test with this mark."""
    found = processes_with("-P -m replica.trainer")
    found = [process for process in found if words_of(process)[1:4] == ["-P", "-m", "replica.trainer"]]
    return [process for process in found if ask(process.environ, dict[str, str]()).get(MARK) == mark]


def request_for(tmp_path: Path, **changes: Any) -> ArchitectureRequest:
    return request_of(PLAIN, tmp_path, **{"batch_size": 32, "learning_rate": 0.02, **changes})


def config_with(starter: str, framework: str = "tensorflow") -> RunConfig:
    chosen = {"replica.rank_starter": starter, "training.framework": framework}
    return load_config(overrides={"run.dataset": "digits", **chosen})


async def train(
    config: RunConfig,
    ranks: int,
    request: ArchitectureRequest,
    folder: Path,
    save: Path | None = None,
    begin: Begin | None = None,
) -> list[FromTrainer]:
    """Train; with `save`, and without `begin`, keep the weights and, next to them, the evidence."""
    need_frameworks(config.training.framework)
    starter = config.replica.rank_starter
    if starter == "mpirun":
        need_open_mpi()
    log = folder / f"{starter}-{ranks}.log"
    trainer = await TrainerProcess.start(RankSetup(config, ranks), request, log)
    try:
        await trainer.until_ready(120)
        assert trainer.built is not None
        assert trainer.built.devices == ("cpu",) * ranks, "those of all ranks"
        evidence = str(save.with_suffix(".rows")) if save else None
        own = Begin(trial=1, save_weights_path=str(save) if save else None, evidence_path=evidence)
        await trainer.begin(begin or own)
        return [message async for message in trainer.messages(120)]
    finally:
        await trainer.end()
