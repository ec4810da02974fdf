"""The pace of a training, or of groups with parameter servers, on the machine of a machine file.

A step takes as long as its operations at the accelerator's rate, a launch, and the part of the
all-reduce that the backward pass does not hide; or, if that is longer, as long as the node's input
pipeline needs for its images. All-reduce by latency and bandwidth as in Thakur, Rabenseifner and
Gropp, Optimization of Collective Communication Operations in MPICH (2005), section 4.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from math import ceil, exp, log2
from statistics import NormalDist, fmean

from aiperf.network.operations import Operations
from aiperf.rules.asynchrony import RETURNS
from aiperf.wire.messages import TrainRequest
from rehearsal.machine.file import AllReduceSection, MachineFile
from rehearsal.subject import Images, Subject
from replica.trainer.simulated_groups import ExchangePlan, GroupPace, ServerPace, parameter_sizes, server_bytes

BYTES_OF_GRADIENT = 4

POINTS = 2000
"""Points of a numerical integral, for three digits with ten thousand ranks."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of an epoch, and where they go."""

    training_s: float
    evaluation_s: float
    compute_s: float
    """Seconds of computing in the training: the accelerator works on counted operations."""
    launch_s: float
    exchange_s: float
    """All-reduce that nothing hides, and waits for slower ranks."""
    input_s: float
    """Waiting for images."""


def all_reduce_s(settings: AllReduceSection, ranks: int, weights: int) -> float:
    """Seconds to sum the gradients of `weights` float32 weights over the ranks of a replica."""
    if ranks < 2:
        return 0.0
    size = weights * BYTES_OF_GRADIENT
    if settings.algorithm == "ring":
        # A ring passes 2 (n - 1) parts of 1/n of the gradients: reduce-scatter, then all-gather.
        return 2 * (ranks - 1) * (settings.latency_s + size / ranks / settings.bytes_per_s)
    return 2 * ceil(log2(ranks)) * (settings.latency_s + size / settings.bytes_per_s)


@cache
def slowest_of(ranks: int) -> float:
    """Mean of the largest of `ranks` standard normal values.

    The largest has the distribution function F^n, so that the mean is the integral of the inverse
    of F at u^(1/n) over u from 0 to 1: by midpoints.
    """
    if ranks == 1:
        return 0.0
    inverse = NormalDist().inv_cdf
    return fmean(inverse(((place + 0.5) / POINTS) ** (1 / ranks)) for place in range(POINTS))


def pace_of(machine: MachineFile, cost: Operations, weights: int, batch_size: int, dataset: Images) -> Pace:
    """The pace of a training of `cost` operations per image, with `batch_size` images per rank."""
    ranks, step = machine.node.ranks, machine.step
    steps = ceil(dataset.train_images / (batch_size * ranks))
    # A mean: the last step has fewer images than the others.
    images = dataset.train_images / steps
    compute_s = images / ranks * cost.total / step.operations_per_s
    slowest_s = (compute_s + step.seconds) * step.rank_spread * slowest_of(ranks)
    exchange_s = slowest_s + (1 - machine.all_reduce.overlap) * all_reduce_s(machine.all_reduce, ranks, weights)
    busy_s = compute_s + step.seconds + exchange_s
    step_s = max(busy_s, images / machine.input.images_per_s)
    return Pace(
        training_s=steps * step_s,
        evaluation_s=evaluation_s(machine, cost.forward, batch_size, dataset.validation_images),
        compute_s=steps * compute_s,
        launch_s=steps * step.seconds,
        exchange_s=steps * exchange_s,
        input_s=steps * (step_s - busy_s),
    )


def evaluation_s(machine: MachineFile, forward: int, batch_size: int, images: int, groups: int = 1) -> float:
    """Seconds in which one of `groups` groups evaluates images of `forward` operations."""
    ranks, step = machine.node.ranks / groups, machine.step
    rate = step.evaluation_operations_per_s or step.operations_per_s
    return max(
        images / ranks * forward / rate + ceil(images / (batch_size * ranks)) * step.seconds,
        images / (machine.input.images_per_s / groups),
    )


LIVES = 1 + RETURNS
"""Lives of a group or a server in a training: it is started again."""


@dataclass(frozen=True, slots=True)
class Grouped:
    """A training in groups on a replica."""

    request: TrainRequest
    subject: Subject
    slower: float
    """Factor by which everything takes longer on the replica."""
    first_epoch: int
    seed: str


def plan_of(machine: MachineFile, training: Grouped, lives_s: Callable[[int], float]) -> ExchangePlan:
    """The plan of a training; `lives_s` draws the seconds until one of this many ranks dies."""
    request, hybrid = training.request, training.request.hybrid
    assert hybrid is not None
    ranks = machine.node.ranks // hybrid.groups
    return ExchangePlan(
        groups=tuple(_group_paces(machine, training, ranks)),
        servers=tuple(server_paces(machine, training.subject, hybrid.servers)),
        train_images=training.subject.dataset.train_images,
        step_images=request.batch_size * ranks,
        epochs=request.epochs,
        first_epoch=training.first_epoch,
        seed=training.seed,
        lives_s={group: tuple(lives_s(ranks) for _ in range(LIVES)) for group in range(1, hybrid.groups)},
        returns_s=machine.start.build_s,
        server_lives_s={server: tuple(lives_s(1) for _ in range(LIVES)) for server in range(hybrid.servers)},
        server_returns_s=machine.servers.restart_s,
    )


def _group_paces(machine: MachineFile, training: Grouped, ranks: int) -> Iterator[GroupPace]:
    step, links, hybrid = machine.step, machine.all_reduce, training.request.hybrid
    assert hybrid is not None
    batch, weights = training.request.batch_size, training.subject.weights
    computing_s = batch * training.subject.cost.total / step.operations_per_s + step.seconds
    # The groups share what the node can decode.
    input_s = batch * ranks * hybrid.groups / machine.input.images_per_s
    all_reduced_s = (1 - links.overlap) * all_reduce_s(links, ranks, weights)
    broadcast_s = ceil(log2(ranks)) * (links.latency_s + weights * BYTES_OF_GRADIENT / links.bytes_per_s)
    drawn = random.Random(f"paces of groups {training.seed}")  # noqa: S311  not for secrets
    for _ in range(hybrid.groups):
        # Factors with the mean 1 (`ModelledTrainer._slower`).
        slower = training.slower * exp(drawn.gauss(-(step.spread**2) / 2, step.spread))
        yield GroupPace(
            # Images are decoded during the all-reduce, too.
            slower * max(computing_s, input_s - all_reduced_s),
            slower * all_reduced_s,
            slower * broadcast_s,
            ranks,
            step.rank_spread,
        )


def server_paces(machine: MachineFile, subject: Subject, servers: int) -> Iterator[ServerPace]:
    """The pace of each server: parameters are placed as in a training.

    The messages of a root share its link: that of a server comes after those of the ones before.
    """
    settings, sent = machine.servers, 0
    for size in server_bytes(parameter_sizes(subject.course.networks), servers):
        sent += size
        yield ServerPace(
            settings.seconds + size / settings.bytes_per_s, settings.latency_s + sent / settings.link_bytes_per_s, size
        )
