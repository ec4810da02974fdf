"""Groups of the simulated trainer: paces that are drawn by its settings."""

from __future__ import annotations

import random

from msgspec.structs import replace

from aiperf.clock import Clock
from aiperf.config.sections.simulated import SimulatedSection
from aiperf.facts import EpochFacts
from aiperf.wire.messages import TrainRequest
from replica.trainer.channel import Reporter
from replica.trainer.simulated_curves import Course
from replica.trainer.simulated_groups.events import GroupsInTime
from replica.trainer.simulated_groups.paces import ExchangePlan, GroupPace, ServerPace, parameter_sizes, server_bytes

GROUP_SHARE = 0.1
"""Share of a step that all-reduce and broadcast take in a group of several ranks."""

LOST_AFTER = 1.5
"""Epochs after which groups are lost, by the clock."""

LEAST_PACE = 0.2


def plan_of(
    request: TrainRequest, settings: SimulatedSection, course: Course, ranks: int, first_epoch: int
) -> ExchangePlan:
    """Plan a training of groups of `ranks` ranks: an epoch takes about `epoch_seconds`."""
    hybrid = request.hybrid
    assert hybrid is not None
    drawn = random.Random(f"paces {request.seed}")
    share = -(-course.train_images // hybrid.groups)
    step_images = request.batch_size * ranks
    step_s = settings.epoch_seconds / max(1, -(-share // step_images))
    sizes = server_bytes(parameter_sizes(course.networks), hybrid.servers)
    in_group_s = GROUP_SHARE * step_s if ranks > 1 else 0.0
    computing_s = step_s * (1 - settings.server_share) - in_group_s
    paces = [max(LEAST_PACE, drawn.gauss(1.0, settings.group_spread)) for _ in range(hybrid.groups)]
    return ExchangePlan(
        groups=tuple(
            GroupPace(pace * max(0.0, computing_s), in_group_s / 2, in_group_s / 2, spread=settings.group_spread)
            for pace in paces
        ),
        # In proportion to what it has: the largest shard takes the whole time of an update.
        servers=tuple(
            ServerPace(settings.server_share * step_s * size / max(sizes), bytes=size) for size in sizes
        ),
        train_images=course.train_images, step_images=step_images, epochs=request.epochs, first_epoch=first_epoch,
        seed=request.seed, lost_s=dict.fromkeys(settings.lost_groups, LOST_AFTER * settings.epoch_seconds),
    )  # fmt: skip


class GroupEpochs:
    """The epochs of a simulated training in groups."""

    def __init__(self, plan: ExchangePlan, clock: Clock) -> None:
        self._groups = GroupsInTime(plan)
        self._epochs = plan.epochs
        self._clock = clock
        self._began_s = self._took_s = 0.0

    def train(self, epoch: int) -> float:
        """Begin an epoch; give its seconds. The last one ends with all groups."""
        self._began_s = self._groups.now_s
        self._took_s = self._groups.train()
        if epoch == self._epochs:
            self._took_s += self._groups.await_others()
        return self._took_s

    def images(self, share: float) -> int:
        """Images of all groups after a share of the epoch's time."""
        return self._groups.images_at(self._began_s + share * self._took_s)

    def end(self, facts: EpochFacts, early: bool, channel: Reporter) -> EpochFacts:
        """Report what groups and servers did; give the facts of the epoch, with their images."""
        self._groups.validate(0.0)
        if early and facts.epoch < self._epochs:
            self._groups.stop()
            self._clock.pause(self._groups.await_others())
        found = self._groups.report(facts.epoch)
        channel.exchange(found.groups, found.servers)
        return replace(facts, images_trained=found.images)
