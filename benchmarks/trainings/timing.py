"""What timed trainings share: the request, and a clock for the training phase."""

import time
from collections.abc import Callable

from aiperf.wire.messages import ArchitectureRequest, Phase
from replica.trainer.channel import Reporter


class TrainClock(Reporter):
    """Seconds of the training phase."""

    def __init__(self, seconds: Callable[[], float] = time.perf_counter) -> None:
        self.seconds = 0.0
        self._now = seconds
        self._began = 0.0

    def phase(self, phase: Phase) -> None:
        """Training begins, or ends with the evaluation."""
        if phase == "train":
            self._began = self._now()
        elif phase == "evaluate":
            self.seconds = self._now() - self._began


def request_for(precision: str, batch: int) -> ArchitectureRequest:
    """One epoch by the rules."""
    return ArchitectureRequest(
        architecture_path="",
        dataset="digits",
        batch_size=batch,
        epochs=1,
        max_epochs=60,
        patience=9,
        seed=1,
        learning_rate=0.1,
        momentum=0.9,
        label_smoothing=0.1,
        precision=precision,
        compile="auto",
        progress_interval_s=5.0,
    )
