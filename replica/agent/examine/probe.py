"""A few real training steps of the initial architecture, by the ranks that a run would start."""

from pathlib import Path

from msgspec.structs import replace

from aiperf.clock import Clock
from aiperf.config.settings import RunConfig
from aiperf.errors import TrialFailedError
from aiperf.examination import ProbeFacts
from aiperf.network.architecture import Architecture
from aiperf.rules.schedule import Assignment
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.run_directory.paths import RunPaths
from aiperf.wire.messages import Begin, TrainerDone, TrainerPhase, TrainerProgress
from replica.agent.share import NodeShare
from replica.agent.trial.requests import TrialTraining, train_request
from replica.agent.trial.trainer import Trainer
from replica.agent.trial.trainer_process import TrainerProcess

REPORT_EVERY_STEP_S = 1e-6
"""Interval between two reports that every step exceeds: the ranks report after each."""


async def train_a_few_steps(
    replica: int, initial: Architecture, share: NodeShare, folder: Path, steps: int, clock: Clock
) -> ProbeFacts:
    """Time some steps after the first one. Raises TrialFailedError, OSError."""
    config = share.ranks.config
    paths = RunPaths(folder / f"probe-{replica:04d}")
    paths.create()
    ArchitectureStore(paths).save(initial)
    seed = Assignment().seed(config, replica)
    training = TrialTraining(initial.hash, hyperparameters_of(config), 1, seed, share.memory.precision)
    request = replace(train_request(config, paths, training), progress_interval_s=REPORT_EVERY_STEP_S)
    began_s = clock.monotonic_s()
    trainer = await TrainerProcess.start(share.ranks, request, paths.trial_log(0))
    try:
        await trainer.until_ready(config.replica.trial_silence)
        start_s = clock.monotonic_s() - began_s
        await trainer.begin(Begin(trial=0, only_steps=steps))
        return await _timed(trainer, share, start_s)
    finally:
        await trainer.end()


def hyperparameters_of(config: RunConfig) -> dict[str, int | float | str]:
    """The hyperparameters of the first trial."""
    training = config.training
    return {
        "batch_size": config.batch_size,
        "learning_rate": training.learning_rate,
        "momentum": training.momentum,
        "label_smoothing": training.label_smoothing,
    }


async def _timed(trainer: Trainer, share: NodeShare, start_s: float) -> ProbeFacts:
    config = share.ranks.config
    moments = list[tuple[int, int]]()
    began_ms = ended_ms = 0
    async for message in trainer.messages(config.replica.trial_silence):
        if isinstance(message, TrainerPhase) and message.phase == "train":
            began_ms = message.monotonic_ms
        elif isinstance(message, TrainerProgress):
            moments.append((message.monotonic_ms, message.facts.images_trained))
        elif isinstance(message, TrainerDone):
            ended_ms = message.monotonic_ms
    if not ended_ms:
        raise TrialFailedError("protocol", "the ranks ended before they had done their steps")
    steps = len(moments) - 1
    if steps < 1:
        # The last step of an epoch is not reported by itself: this one has two at most.
        steps, moments = len(moments) + 1, [(began_ms, 0), (ended_ms, config.dataset.train_images)]
    (first_ms, first_images), (last_ms, last_images) = moments[0], moments[-1]
    return ProbeFacts(
        train_images=config.dataset.train_images,
        validation_images=config.dataset.validation_images,
        steps=steps,
        images=last_images - first_images,
        seconds=max(1, last_ms - first_ms) / 1000,
        start_s=start_s,
        devices=trainer.built.devices if trainer.built is not None else (),
        compiled=trainer.built.compiled if trainer.built is not None else None,
    )
