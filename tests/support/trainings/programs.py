"""A small training by a trainer program, and all its messages."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiperf.config.settings import RunConfig
from aiperf.facts import EpochFacts
from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import BatchNorm, Conv, Dense, Flatten, Input, ReLU, Softmax
from aiperf.wire.messages import Begin, FromTrainer, TrainerEpoch, TrainRequest
from replica.agent.trial.rank_setup import RankSetup
from replica.agent.trial.trainer_process import TrainerProcess

TINY = Architecture(
    (
        Node("in", Input(32, 32, 3)),
        Node("conv", Conv(8, stride=(4, 4)), ("in",)),
        Node("bn", BatchNorm(), ("conv",)),
        Node("relu", ReLU(), ("bn",)),
        Node("flat", Flatten(), ("relu",)),
        Node("fc", Dense(10), ("flat",)),
        Node("softmax", Softmax(), ("fc",)),
    )
)

BEGIN = Begin(trial=1)


async def collect(
    config: RunConfig, request: TrainRequest, log: Path, begin: Begin = BEGIN, built: list[Any] | None = None
) -> list[FromTrainer]:
    """All messages of a training but `TrainerReady`, whose facts are added to `built`."""
    trainer = await TrainerProcess.start(RankSetup(config, 1, cpu_threads=2), request, log)
    try:
        phases: list[FromTrainer] = [phase async for phase in trainer.warm_up(120)]
        if built is not None:
            built.append(trainer.built)
        await trainer.begin(begin)
        return phases + [message async for message in trainer.messages(120)]
    finally:
        await trainer.end()


def epochs_of(messages: Sequence[FromTrainer]) -> list[EpochFacts]:
    return [message.facts for message in messages if isinstance(message, TrainerEpoch)]
