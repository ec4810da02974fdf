"""The paces of groups and parameter servers on the machine of a machine file."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil, exp, log2

from aiperf.rules.asynchrony import RETURNS
from aiperf.wire.messages import TrainRequest
from rehearsal.machine.file import MachineFile
from rehearsal.pace import BYTES_OF_GRADIENT, all_reduce_s
from rehearsal.subject import Subject
from replica.trainer.simulated_groups import ExchangePlan, GroupPace, ServerPace, parameter_sizes, server_bytes

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
    """The plan of a training; `lives_s` draws the seconds until so many ranks have a death."""
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
