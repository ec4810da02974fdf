"""The contract of a scientific workload: its networks, data, task, schedule and target."""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from aiperf.network.architecture import Architecture
from aiperf.network.layers import Dropout
from aiperf.network.operations import count
from aiperf.network.science import SCIENCE_1, Passes, training_operations
from workloads.data.sets import ScienceSet
from workloads.settings.single import OneNetwork

Optimiser = Literal["sgd", "adam"]
Decay = Literal["none", "linear", "cosine", "steps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPasses:
    """The passes of one image through one network: how many of each kind."""

    network: str
    forward: int = 1
    backward: int = 1
    input_gradient: int = 0

    def as_recorded(self) -> dict[str, str | int]:
        """The passes as the record of a start has them."""
        return {
            "network": self.network,
            "forward": self.forward,
            "backward": self.backward,
            "input_gradient": self.input_gradient,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """An optimiser, and its learning rate by the share of the training that is over."""

    optimiser: Optimiser
    learning_rate: float
    """Largest learning rate, for one accelerator with the workload's batch."""
    momentum: float = 0.9
    """Momentum of SGD, or Adam's beta 1."""
    warm_up: float = 0.0
    """Share of the training over which the rate rises linearly from 0."""
    decay: Decay = "none"
    """Decay after the warm-up: linear to 0, steps, or a cosine to `last` (Loshchilov and Hutter
    2017).
    """
    last: float = 0.0
    """Last rate of a cosine, as a share of the largest."""
    steps: tuple[tuple[float, float], ...] = ()
    """Steps of the decay: from a share of the training on, a share of the largest rate."""
    clip: float | None = None
    """Largest Euclidean norm of the gradient of all variables."""
    weight_decay: float = 0.0

    def factor(self, share: float) -> float:
        """The rate after this share of the training, as a share of the largest rate."""
        rising = min(1.0, share / self.warm_up) if self.warm_up else 1.0
        return rising * self._decayed(share)

    def _decayed(self, share: float) -> float:
        if self.decay == "linear":
            return max(0.0, 1.0 - share)
        if self.decay == "cosine":
            after = min(1.0, max(0.0, (share - self.warm_up) / (1.0 - self.warm_up)))
            return self.last + (1.0 - self.last) * 0.5 * (1.0 + math.cos(math.pi * after))
        # The last step that has begun; "none" has no steps, and stays at 1.
        return next((value for start, value in reversed(self.steps) if share >= start), 1.0)

    def as_recorded(self, epochs: int) -> dict[str, int | float | str]:
        """The schedule as the record of a start has it, by names of MLPerf HPC's logs if it can."""
        found: dict[str, int | float | str] = {
            "optimiser": self.optimiser,
            "momentum": self.momentum,
            "weight_decay": self.weight_decay,
            "warmup_epochs": self.warm_up * epochs,
            "warmup_factor": 0.0,
            "decay": self.decay,
        }
        if self.steps:
            found["decay_epochs"] = ",".join(f"{share * epochs:g}" for share, _ in self.steps)
            found["decay_factors"] = ",".join(f"{factor:g}" for _, factor in self.steps)
        return found | ({"clip": self.clip} if self.clip is not None else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class DataNeeds:
    """The data set of a size."""

    source: str
    """Name of its input pipeline (`replica.trainer.data`)."""
    folder: str
    """Name of its folder below `science.data_dir`."""
    input_shape: tuple[int, ...]
    target_shape: tuple[int, ...]
    blank_target: float = 0.0
    """Value that fills the targets of blank examples."""
    train_examples: int
    """Number of training examples of the official data, or to generate for a rehearsal."""
    validation_examples: int
    test_examples: int = 0
    """Number of test examples to generate for a rehearsal. Observed data bring their own: they are
    evaluated once, at the end of a training.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSize:
    """A workload at one size: official, or a rehearsal for a laptop."""

    networks: Mapping[str, Callable[[], Architecture]]
    """Networks by name; the first one names the checkpoints."""
    training: tuple[NetworkPasses, ...]
    """Passes of an image that is trained."""
    evaluation: tuple[NetworkPasses, ...]
    """Passes of an image that is evaluated."""
    further_training: int = 0
    """Operations outside of networks to train an image: RoI-align."""
    further_evaluation: int = 0
    """Operations outside of networks to evaluate an image."""
    task: str
    """Name of the task (`replica.trainer.tasks`)."""
    settings: object
    """Settings of that task (`workloads.settings`)."""
    data: DataNeeds
    batch_size: int
    """Examples per accelerator and step."""
    epochs: int
    """Most epochs."""
    schedule: Schedule
    target: Mapping[str, float]
    """Target of each measure of the validation examples; one epoch must reach all."""
    higher: bool
    """True if a higher measure is better."""

    def training_operations(self) -> int:
        """Operations to train one image, by rule set `science-1`."""
        return self._operations(self.training) + self.further_training

    def evaluation_operations(self) -> int:
        """Operations to evaluate one image, by rule set `science-1`."""
        return self._operations(self.evaluation) + self.further_evaluation

    def _operations(self, passes: tuple[NetworkPasses, ...]) -> int:
        return training_operations(
            Passes(count(self.networks[each.network](), SCIENCE_1), each.forward, each.backward, each.input_gradient)
            for each in passes
        )

    def dropout(self) -> float:
        """The largest rate of dropout in its networks; 0 without any."""
        layers = (node.layer for build in self.networks.values() for node in build().nodes)
        return max((layer.rate for layer in layers if isinstance(layer, Dropout)), default=0.0)

    def quality(self, measures: Mapping[str, float]) -> float:
        """The first measure of the target, turned so that higher is better."""
        first = measures[next(iter(self.target))]
        return first if self.higher else -first

    def reached(self, measures: Mapping[str, float]) -> bool:
        """True if measures of one epoch are at or beyond the target, all of them."""
        return all(
            measures[name] >= wanted if self.higher else measures[name] <= wanted
            for name, wanted in self.target.items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScienceWorkload:
    """A fixed training, at its official size and as a rehearsal."""

    name: str
    title: str
    """Title of a few words, for tables."""
    official: WorkloadSize
    rehearsal: WorkloadSize

    def size(self, name: str) -> WorkloadSize:
        """The size of this name, "official" or "rehearsal"."""
        return self.official if name == "official" else self.rehearsal


def one_network(build: Callable[[], Architecture]) -> Any:
    """The fields of a size that follow from its only network."""
    return {
        "networks": {"network": build},
        "training": (NetworkPasses(network="network"),),
        "evaluation": (NetworkPasses(network="network", backward=0),),
        "settings": OneNetwork(build),
    }


def planned(needs: DataNeeds) -> ScienceSet:
    """The set of a training that only takes its time; its fingerprint is of its sizes."""
    counts = needs.train_examples, needs.validation_examples, needs.test_examples
    fingerprint = hashlib.sha256(f"planned {needs.folder} {counts}".encode()).hexdigest()
    return ScienceSet(
        needs.source,
        needs.train_examples,
        needs.validation_examples,
        needs.input_shape,
        needs.target_shape,
        fingerprint,
        generated=True,
        test_images=needs.test_examples,
    )
