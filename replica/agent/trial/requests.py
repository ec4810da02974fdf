"""Requests to a trainer, as functions of the records alone: a training can be repeated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aiperf.config.settings import RunConfig
from aiperf.rules.rounds import plan_round
from aiperf.run_directory.paths import RunPaths
from aiperf.wire.messages import TrainRequest
from replica.agent.trial.hybrid import default_rate, hybrid_of
from workloads.science import SCIENCE


@dataclass(frozen=True, slots=True)
class TrialTraining:
    """A trial's training: its architecture by hash, and all that distinguishes it from others."""

    architecture: str
    hyperparameters: Mapping[str, int | float | str]
    round: int
    seed: int
    """Seed of the job."""
    precision: str


def train_request(config: RunConfig, paths: RunPaths, training: TrialTraining) -> TrainRequest:
    """The request for a training in a run of this configuration."""
    rounds, hyperparameters = plan_round(training.round, config.max_epochs), training.hyperparameters
    return TrainRequest(
        architecture_path=str(paths.architecture(training.architecture)),
        architecture_hash=training.architecture,
        dataset=config.run.dataset,
        data_dir=config.run.data_dir,
        synthetic_input=config.training.input == "synthetic",
        parallel_decode=config.training.parallel_decode,
        shuffle_buffer=config.training.shuffle_buffer,
        batch_size=int(hyperparameters["batch_size"]),
        epochs=rounds.epochs,
        max_epochs=config.max_epochs,
        patience=rounds.patience,
        seed=training.seed,
        learning_rate=default_rate(config, "sgd", float(hyperparameters["learning_rate"])),
        momentum=float(hyperparameters["momentum"]),
        label_smoothing=float(hyperparameters["label_smoothing"]),
        precision=training.precision,
        compile=config.training.compile,
        progress_interval_s=config.replica.progress_interval,
        hybrid=hybrid_of(config, "sgd", float(hyperparameters["momentum"])),
    )


@dataclass(frozen=True, slots=True)
class ScienceTraining:
    """The training of one model of a scientific workload, and all that distinguishes it."""

    workload: str
    hyperparameters: Mapping[str, int | float | str]
    seed: int
    """Seed of the job."""
    precision: str
    data_dir: str | None


def science_request(config: RunConfig, training: ScienceTraining) -> TrainRequest:
    """The request for the training of a scientific workload in a run of this configuration."""
    hyperparameters = training.hyperparameters
    own = SCIENCE.load(training.workload).size(config.science.size).schedule
    return TrainRequest(
        architecture_path="",
        dataset=training.workload,
        data_dir=training.data_dir,
        parallel_decode=config.training.parallel_decode,
        shuffle_buffer=config.training.shuffle_buffer,
        batch_size=int(hyperparameters["batch_size"]),
        epochs=int(hyperparameters["max_epochs"]),
        max_epochs=int(hyperparameters["max_epochs"]),
        # Only the target and the last epoch end it: patience is longer than the training.
        patience=int(hyperparameters["max_epochs"]) + 1,
        seed=training.seed,
        learning_rate=float(hyperparameters["learning_rate"]),
        momentum=0.0,
        label_smoothing=0.0,
        precision=training.precision,
        compile=config.training.compile,
        progress_interval_s=config.replica.progress_interval,
        workload=training.workload,
        size=config.science.size,
        stops_at_target=config.science.stop == "quality",
        hybrid=hybrid_of(config, own.optimiser, own.momentum),
    )
