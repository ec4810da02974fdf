"""Requests to a trainer, as functions of the records alone: a training can be repeated.

The part of a hybrid training has its parameter servers, its rates, and the ranks that it needs.
"""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from aiperf.config.settings import RunConfig
from aiperf.errors import TrialFailedError
from aiperf.facts import HybridTraining
from aiperf.rules.asynchrony import WARM_UP_UPDATES, momentum_of, rate_of
from aiperf.rules.rounds import plan_round
from aiperf.run_directory.paths import RunPaths
from aiperf.wire.messages import UNFIT, ArchitectureRequest, WorkloadRequest
from workloads.science import SCIENCE

Optimiser = Literal["sgd", "adam"]


def servers_of(config: RunConfig) -> int:
    """Number of parameter servers of a training: 0 with one group."""
    return config.training.parameter_servers if config.training.groups > 1 else 0


def hybrid_of(config: RunConfig, own: Optimiser, momentum: float) -> HybridTraining | None:
    """The hybrid part of a request, for a training with this optimiser; None with one group."""
    training = config.training
    if training.groups == 1:
        return None
    return HybridTraining(
        groups=training.groups,
        servers=training.parameter_servers,
        optimiser=server_optimiser(config, own),
        momentum=momentum_of(training.groups, momentum),
        warm_up=WARM_UP_UPDATES,
        staleness_aware=training.staleness_aware,
    )


def server_optimiser(config: RunConfig, own: Optimiser) -> Optimiser:
    """The optimiser of the servers, by `training.server_optimiser`."""
    return own if config.training.server_optimiser == "own" else "adam"


def default_rate(config: RunConfig, own: Optimiser, rate: float) -> float:
    """The learning rate that replaces a synchronous training's; the same with one group."""
    groups = config.training.groups
    return rate if groups == 1 else rate_of(groups, server_optimiser(config, own), own, rate)


def recorded(hybrid: HybridTraining | None) -> Mapping[str, int | float | str]:
    """The fields of a start's record that describe a hybrid training; none for another one."""
    if hybrid is None:
        return {}
    return {
        "groups": hybrid.groups,
        "parameter_servers": hybrid.servers,
        "optimiser": hybrid.optimiser,
        "momentum": hybrid.momentum,
        "staleness_aware": int(hybrid.staleness_aware),
    }


def check_groups(groups: int, ranks: int, nodes: int) -> None:
    """Raise TrialFailedError ("unfit") if these ranks cannot train in groups on this machine."""
    if groups == 1:
        return
    if ranks % groups:
        raise TrialFailedError(UNFIT, f"{groups} groups cannot share {ranks} ranks evenly (training.groups)")
    if nodes > 1 and max(groups, nodes) % min(groups, nodes):
        raise TrialFailedError(UNFIT, f"{groups} groups cannot share {nodes} nodes evenly (training.groups)")


def check_messages() -> None:
    """Raise TrialFailedError ("unfit") if groups and servers cannot reach each other from here."""
    if importlib.util.find_spec("zmq") is None:
        raise TrialFailedError(UNFIT, "training.groups needs pyzmq: install AIPerf with the extra [hybrid]")


@dataclass(frozen=True, slots=True)
class TrialTraining:
    """A trial's training: its architecture by hash, and all that distinguishes it from others."""

    architecture: str
    hyperparameters: Mapping[str, int | float | str]
    round: int
    seed: int
    """Seed of the job."""
    precision: str


def train_request(config: RunConfig, paths: RunPaths, training: TrialTraining) -> ArchitectureRequest:
    """The request for a training in a run of this configuration."""
    rounds, hyperparameters = plan_round(training.round, config.max_epochs), training.hyperparameters
    return ArchitectureRequest(
        architecture_path=str(paths.architecture(training.architecture)),
        architecture_hash=training.architecture,
        dataset=config.run.dataset,
        data_dir=config.run.data_dir,
        synthetic_input=config.training.input == "synthetic",
        decoder=config.training.decoder,
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


def science_request(config: RunConfig, training: ScienceTraining) -> WorkloadRequest:
    """The request for the training of a scientific workload in a run of this configuration."""
    hyperparameters = training.hyperparameters
    own = SCIENCE.load(training.workload).size(config.science.size).schedule
    return WorkloadRequest(
        workload=training.workload,
        size=config.science.size,
        stops_at_target=config.science.stop == "quality",
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
        precision=training.precision,
        compile=config.training.compile,
        progress_interval_s=config.replica.progress_interval,
        hybrid=hybrid_of(config, own.optimiser, own.momentum),
    )
