"""The subject of a rehearsed training: its cost, its data, and its made-up facts."""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from aiperf.config.datasets import Dataset
from aiperf.config.space import Value
from aiperf.facts import EpochFacts
from aiperf.network.architecture import Architecture
from aiperf.network.operations import Operations, totals
from aiperf.rules.rounds import learning_rate
from aiperf.wire.messages import ArchitectureRequest, TrainRequest, WorkloadRequest
from rehearsal.machine.file import CurveSection, MachineFile
from replica.agent.trial.science import cost_of
from replica.trainer.simulated_curves import SimulatedCourse
from replica.trainer.simulated_curves.science import course_on, data_of, size_of

# Learning curves: quality saturates exponentially over the epochs, with noise.
#
# The gain of an architecture follows from its hash, and the loss by hyperparameters from the
# distance of the learning rate to 0.1: a search has something to find, and a rehearsal can be
# repeated exactly.

LOSS_AT_FIRST = 5.0


class Curve:
    """The quality of one training after each epoch."""

    def __init__(
        self, settings: CurveSection, architecture: str, hyperparameters: Mapping[str, Value], seed: int
    ) -> None:
        self._settings = settings
        self._seed = seed
        gain = settings.gain * random.Random(f"architecture {architecture}").random()  # noqa: S311  not for secrets
        self._limit = min(0.999, settings.best + gain - _penalty(hyperparameters))

    def accuracy(self, epoch: int) -> float:
        """Top-1 accuracy after an epoch, from 1: a resumed training repeats what was."""
        noise = random.Random(f"{self._seed} {epoch}").gauss(0.0, self._settings.noise)  # noqa: S311
        reached = self._limit * (1 - math.exp(-epoch / self._settings.epochs)) + noise
        return min(0.999, max(0.0, reached))

    def loss(self, epoch: int) -> float:
        """Training loss after an epoch."""
        return 1.0 + LOSS_AT_FIRST * math.exp(-epoch / self._settings.epochs)


def _penalty(hyperparameters: Mapping[str, Value]) -> float:
    """Accuracy that a learning rate loses: 1 % for a factor of e from 0.1."""
    rate = float(hyperparameters.get("learning_rate", 0.1))
    return 0.01 * abs(math.log(max(rate, 1e-9) / 0.1))


class Images(Protocol):
    """The sizes of a data set."""

    @property
    def train_images(self) -> int:
        """Images of an epoch's training."""

    @property
    def validation_images(self) -> int:
        """Images of its validation."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A training as its time depends on it."""

    course: SimulatedCourse
    cost: Operations
    """Operations of an image."""
    weights: int
    dataset: Images


@dataclass(frozen=True, slots=True)
class AutomlCourse:
    """The course of a network that a search has found (`SimulatedCourse`)."""

    request: ArchitectureRequest
    network: Architecture
    architecture: str
    dataset: Dataset
    curve: Curve

    @property
    def networks(self) -> tuple[Architecture, ...]:
        """The network."""
        return (self.network,)

    @property
    def train_images(self) -> int:
        """Images that an epoch trains."""
        return self.dataset.train_images

    def facts(self, epoch: int) -> EpochFacts:
        """The facts of an epoch."""
        dataset, request, loss = self.dataset, self.request, self.curve.loss(epoch)
        return EpochFacts(
            epoch=epoch,
            images_trained=dataset.train_images,
            images_evaluated=dataset.validation_images,
            correct=round(dataset.validation_images * self.curve.accuracy(epoch)),
            loss=loss,
            validation_loss=loss,
            learning_rate=learning_rate(request.learning_rate, epoch - 1, request.max_epochs),
        )

    def reached(self, facts: EpochFacts) -> bool:
        """False: only patience ends a training of AutoML."""
        return False


def subject_of(
    request: TrainRequest, machine: MachineFile, dataset: Dataset | None, load: Callable[[str], Architecture]
) -> Subject:
    """The subject of a request. AutoML needs `dataset`; `load` gives the architecture of a hash."""
    if isinstance(request, WorkloadRequest):
        return _workload(request, machine)
    assert dataset is not None
    name = request.architecture_hash or ""
    network = load(name)
    cost, weights = totals(network)
    curve = Curve(machine.curve, name, {"learning_rate": request.learning_rate}, request.seed)
    return Subject(AutomlCourse(request, network, name, dataset, curve), cost, weights, dataset)


def _workload(request: WorkloadRequest, machine: MachineFile) -> Subject:
    size = size_of(request)
    data = data_of(request)
    images = machine.data.train_images.get(request.workload, data.train_images)
    data = replace(data, train_images=images)
    weights = sum(build().parameter_count for build in size.networks.values())
    return Subject(course_on(request, data), cost_of(size), weights, data)
