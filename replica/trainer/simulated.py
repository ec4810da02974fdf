"""The simulated trainer: the protocol of the real one without training, for speed and scale.

`python -m replica.trainer.simulated SETTINGS` with the JSON of `SimulatedSection`. Its accuracies are made up,
which the report says: a run with it is never official.
"""

from __future__ import annotations

import math
import os
import random
import signal
import sys
import time
from pathlib import Path

from aiperf.architecture_json import read_architecture
from aiperf.config import SimulatedSection
from aiperf.datasets import DATASETS
from aiperf.messages import TrainerEpoch, TrainRequest
from replica.rounds import out_of_patience
from replica.trainer.channel import Channel, now_ms

PROGRESS_REPORTS = 4
"""Progress reports in an epoch."""


def accuracy_after(epoch: int, max_epochs: int, quality: float) -> float:
    """A made-up learning curve that rises towards `quality`."""
    return quality * (1 - math.exp(-4 * epoch / max_epochs))


def main() -> int:
    """Pretend to train one request."""
    channel = Channel()
    request = channel.receive_request()
    channel.end_with_agent()
    settings = SimulatedSection.model_validate_json(sys.argv[1], strict=False)
    channel.phase("start")
    channel.phase("build")
    if request.trial in settings.fail_trials:
        channel.failed("build", "simulated.fail_trials names this trial")
        return 0
    architecture = read_architecture(Path(request.architecture_path))
    quality = random.Random(architecture.hash).uniform(0.75, 0.99)
    channel.done(_pretend(request, settings, channel, quality))
    return 0


def _pretend(request: TrainRequest, settings: SimulatedSection, channel: Channel, quality: float) -> bool:
    dataset = DATASETS[request.dataset]
    accuracies: list[float] = []
    for epoch in range(1, request.epochs + 1):
        channel.phase("train")
        for report in range(1, PROGRESS_REPORTS):
            time.sleep(settings.epoch_seconds / PROGRESS_REPORTS)
            channel.progress(epoch, dataset.train_images * report // PROGRESS_REPORTS, 0)
            _misbehave(request.trial, epoch, settings)
        time.sleep(settings.epoch_seconds / PROGRESS_REPORTS)
        channel.phase("evaluate")
        accuracies.append(accuracy_after(epoch, request.max_epochs, quality))
        channel.epoch_completed(
            TrainerEpoch(
                monotonic_ms=now_ms(),
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
    return False


def _misbehave(trial: int, epoch: int, settings: SimulatedSection) -> None:
    if epoch == 2 and trial in settings.crash_trials:
        os.kill(os.getpid(), signal.SIGKILL)
    if trial in settings.hang_trials:
        time.sleep(3600)


if __name__ == "__main__":
    sys.exit(main())
