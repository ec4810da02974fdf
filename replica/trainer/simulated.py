"""The simulated trainer: the real one's protocol without training, for speed and scale.

`python -m replica.trainer.simulated SETTINGS SIMULATED` with the JSON of `RankSettings` and
`SimulatedSection`. Its accuracies are made up, and the report says so: a run with it is never
official.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from aiperf.clock import Clock, SystemClock
from aiperf.config.datasets import find_dataset
from aiperf.config.sections import SimulatedSection
from aiperf.errors import AiperfError, TrialFailedError
from aiperf.facts import BuiltFacts, EpochFacts, ProgressFacts
from aiperf.files import keep_others_from_writing, read, write_atomically
from aiperf.message_lines import decode_begin, decode_train_request
from aiperf.messages import Begin, TrainRequest
from aiperf.network.json_files import read_requested
from aiperf.rules.rounds import out_of_patience
from aiperf.source_code import source_hash
from aiperf.storage.patience import PATIENCE
from replica.trainer.channel import Channel
from replica.trainer.settings import RankSettings, framework_variables, read_settings

PROGRESS_REPORTS = 4
"""Progress reports in an epoch."""


def accuracy_after(epoch: int, max_epochs: int, quality: float) -> float:
    """A made-up learning curve that rises towards `quality`."""
    return quality * (1 - math.exp(-4 * epoch / max_epochs))


def main() -> int:
    """Pretend to train one request."""
    keep_others_from_writing()
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
        architecture = read_requested(Path(request.architecture_path), request.architecture_hash)
    except TrialFailedError as error:
        channel.failed(error.kind, error.reason)
        return 1
    except AiperfError as error:
        channel.failed("input", str(error))
        return 1
    channel.ready(_built(architecture.hash))
    begin = decode_begin(channel.receive_line())
    if begin.trial in settings.fail_trials:
        channel.failed("build", "simulated.fail_trials names this trial")
        return 1
    quality = random.Random(architecture.hash).uniform(0.75, 0.99)
    channel.done(_pretend(request, Pretence(begin, settings, quality), channel, clock))
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
    """The course of a simulated training."""

    begin: Begin
    settings: SimulatedSection
    quality: float
    """The accuracy that its learning curve approaches."""


def _pretend(request: TrainRequest, pretence: Pretence, channel: Channel, clock: Clock) -> bool:
    begin, settings = pretence.begin, pretence.settings
    dataset = find_dataset(request.dataset, request.data_dir)
    accuracies = _restored(begin)
    for epoch in range(len(accuracies) + 1, request.epochs + 1):
        channel.phase("train")
        for report in range(1, PROGRESS_REPORTS):
            clock.pause(settings.epoch_seconds / PROGRESS_REPORTS)
            trained = dataset.train_images * report // PROGRESS_REPORTS
            channel.progress(ProgressFacts(epoch=epoch, images_trained=trained, images_evaluated=0))
            _misbehave(begin.trial, epoch, settings, clock)
        clock.pause(settings.epoch_seconds / PROGRESS_REPORTS)
        channel.phase("evaluate")
        accuracies.append(accuracy_after(epoch, request.max_epochs, pretence.quality))
        channel.epoch(
            EpochFacts(
                epoch=epoch,
                images_trained=dataset.train_images,
                images_evaluated=dataset.validation_images,
                correct=round(accuracies[-1] * dataset.validation_images),
                loss=1 - accuracies[-1],
                validation_loss=1 - accuracies[-1],
                learning_rate=request.learning_rate * (1 - (epoch - 1) / request.max_epochs),
            )
        )
        if out_of_patience(accuracies, request.patience):
            return True
        if begin.checkpoint_path is not None:
            write_atomically(Path(begin.checkpoint_path), json.dumps(accuracies).encode())
    return False


def _restored(begin: Begin) -> list[float]:
    """The accuracies of the earlier epochs, from the checkpoint of the resumed trial."""
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
