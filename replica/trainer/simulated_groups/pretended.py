"""Groups of the simulated trainer: paces that are drawn by its settings."""

import random
from math import inf

from aiperf.config.sections.simulated import SimulatedSection
from aiperf.wire.messages import TrainRequest
from replica.trainer.simulated_curves import Course
from replica.trainer.simulated_groups.paces import ExchangePlan, GroupPace, ServerPace, parameter_sizes, server_bytes

GROUP_SHARE = 0.1
"""Share of a step that all-reduce and broadcast take in a group of several ranks."""

LOST_AFTER = 1.5
"""Epochs after which groups are lost and servers killed, by the clock."""

BACK_AFTER = 0.5
"""Epochs after which they are ready to come back."""

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
        servers=tuple(ServerPace(settings.server_share * step_s * size / max(sizes), bytes=size) for size in sizes),
        train_images=course.train_images,
        step_images=step_images,
        epochs=request.epochs,
        first_epoch=first_epoch,
        seed=request.seed,
        lives_s=dict.fromkeys(settings.lost_groups, (LOST_AFTER * settings.epoch_seconds, inf)),
        returns_s=BACK_AFTER * settings.epoch_seconds,
        server_lives_s=dict.fromkeys(settings.killed_servers, (LOST_AFTER * settings.epoch_seconds,)),
        server_returns_s=BACK_AFTER * settings.epoch_seconds,
    )
