"""The simulated trainer: the real one's protocol without training, for speed and scale.

`python -m replica.trainer.simulated SETTINGS SIMULATED` with the JSON of `RankSettings` and
`SimulatedSection`. Its accuracies are made up, and the report says so: a run with it is never
official.
"""

import json
import os
import signal
import sys
from dataclasses import dataclass
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
from replica.trainer.simulated_curves import Course, course_of
from replica.trainer.simulated_groups.epochs import Alone, Epochs, InGroups
from replica.trainer.simulated_groups.pretended import plan_of

PROGRESS_REPORTS = 4
"""Progress reports in an epoch."""


def main() -> int:
    """Pretend to train one request."""
    keep_others_from_writing()
    hold_warnings()
    own = read_settings()
    with PATIENCE.set(own.patience_s):
        return _train(own)


def _train(own: RankSettings) -> int:
    clock = SystemClock()
    channel = Channel(own.channel, clock)
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
    course: Course
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
    return InGroups(plan_of(request, settings, course, pretence.ranks, first_epoch))


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
