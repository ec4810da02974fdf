"""The simulated trainer: the real one's protocol without training, for speed and scale.

`python -m replica.trainer.simulated SETTINGS SIMULATED` with the JSON of `RankSettings` and
`SimulatedSection`. Its accuracies are made up, and the report says so: a run with it is never
official.
"""

import json
import os
import random
import signal
import sys
from dataclasses import dataclass
from math import inf
from pathlib import Path

from aiperf.clock import Clock, SystemClock
from aiperf.config.sections.simulated import SimulatedSection
from aiperf.errors import AiperfError, TrialFailedError
from aiperf.facts import BuiltFacts, ProgressFacts
from aiperf.files import keep_others_from_writing, read, write_atomically
from aiperf.rules.rounds import out_of_patience
from aiperf.signals import hold_warnings
from aiperf.source_code import source_hash
from aiperf.storage.patience import PATIENCE
from aiperf.wire.lines import decode_begin, decode_train_request
from aiperf.wire.messages import Begin, TrainRequest
from replica.trainer.channel import Channel, Reporter
from replica.trainer.settings import RankSettings, framework_variables, read_settings
from replica.trainer.simulated_curves import SimulatedCourse, course_of
from replica.trainer.simulated_groups.epochs import Alone, Epochs, InGroups
from replica.trainer.simulated_groups.paces import ExchangePlan, GroupPace, ServerPace, parameter_sizes, server_bytes

PROGRESS_REPORTS = 4
"""Progress reports in an epoch."""

GROUP_SHARE = 0.1
"""Share of a step that all-reduce and broadcast take in a group of several ranks."""

LOST_AFTER = 1.5
"""Epochs after which groups are lost and servers killed, by the clock."""

BACK_AFTER = 0.5
"""Epochs after which they are ready to come back."""

LEAST_PACE = 0.2


def main() -> int:
    """Pretend to train one request."""
    keep_others_from_writing()
    hold_warnings()
    own = read_settings()
    clock = SystemClock()
    channel = Channel(own.channel, clock)
    with PATIENCE.set(own.patience_s, channel.waits):
        return _train(own, channel, clock)


def _train(own: RankSettings, channel: Channel, clock: SystemClock) -> int:
    settings = SimulatedSection.model_validate_json(sys.argv[2], strict=False)
    channel.phase("start")
    request = decode_train_request(channel.receive_line())
    channel.phase("build")
    try:
        course = course_of(request)
    except TrialFailedError as error:
        channel.failed(error.kind, error.reason)
        return 1
    except AiperfError as error:
        channel.failed("input", str(error))
        return 1
    channel.ready(_built(course.architecture))
    begin = decode_begin(channel.receive_line())
    if begin.trial in settings.fail_trials:
        channel.failed("build", "simulated.fail_trials names this trial")
        return 1
    channel.done(pretend(request, Pretence(begin, settings, course, own.ranks), channel, clock))
    return 0


def _built(architecture: str) -> BuiltFacts:
    """Facts of a network that nothing has built."""
    return BuiltFacts(
        architecture=architecture,
        compute={},
        devices=("none",),
        framework="simulated",
        source_hash=source_hash(),
        environment=framework_variables(),
    )


@dataclass(frozen=True, slots=True)
class Pretence:
    """A simulated training: its begin, its faults, and its learning curve."""

    begin: Begin
    settings: SimulatedSection
    course: SimulatedCourse
    ranks: int
    """Ranks of a group."""


def pretend(request: TrainRequest, pretence: Pretence, channel: Reporter, clock: Clock) -> bool:
    """Let the time of a training pass, and report its epochs; True if it ended early."""
    begin, settings, course = pretence.begin, pretence.settings, pretence.course
    qualities = _restored(begin)
    epochs = _epochs(request, pretence, len(qualities) + 1)
    for epoch in range(len(qualities) + 1, request.epochs + 1):
        channel.phase("train")
        seconds = epochs.train(epoch)
        for report in range(1, PROGRESS_REPORTS):
            clock.pause(seconds / PROGRESS_REPORTS)
            trained = epochs.images(report / PROGRESS_REPORTS)
            channel.progress(ProgressFacts(epoch=epoch, images_trained=trained, images_evaluated=0))
            _misbehave(begin.trial, epoch, settings, clock)
        clock.pause(seconds / PROGRESS_REPORTS)
        channel.phase("evaluate")
        facts = course.facts(epoch)
        qualities.append(facts.quality or 0.0)
        early = out_of_patience(qualities, request.patience) or course.reached(facts)
        ended = epochs.end(facts, early)
        clock.pause(ended.waits_s)
        if ended.exchange is not None:
            channel.exchange(ended.exchange.groups, ended.exchange.servers)
        channel.epoch(ended.facts)
        if early:
            return True
        if begin.checkpoint_path is not None:
            write_atomically(Path(begin.checkpoint_path), json.dumps(qualities).encode())
    return False


def _epochs(request: TrainRequest, pretence: Pretence, first_epoch: int) -> Epochs:
    settings, course = pretence.settings, pretence.course
    if request.hybrid is None:
        return Alone(course.train_images, lambda epoch: settings.epoch_seconds)
    return InGroups(_plan_of(request, settings, course, pretence.ranks, first_epoch))


def _plan_of(
    request: TrainRequest, settings: SimulatedSection, course: SimulatedCourse, ranks: int, first_epoch: int
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


def _restored(begin: Begin) -> list[float]:
    """The qualities of the earlier epochs, from the checkpoint of the resumed trial."""
    if not begin.restore:
        return []
    try:
        found = json.loads(read(Path(begin.checkpoint_path or "")))
    except (OSError, ValueError):
        return []
    return [float(value) for value in found[: begin.restore]]


def _misbehave(trial: int, epoch: int, settings: SimulatedSection, clock: Clock) -> None:
    if epoch == 2 and trial in settings.crash_trials:
        os.kill(os.getpid(), signal.SIGKILL)
    if trial in settings.hang_trials:
        clock.pause(3600)


if __name__ == "__main__":
    sys.exit(main())
