"""The earliest end of the current training, forecast from its reports."""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.rules.rounds import epochs_left


class Forecast:
    """Extrapolates the pace of a training. Times are seconds of any one clock."""

    def __init__(self, epochs: int, patience: int) -> None:
        self._epochs = epochs
        self._patience = patience
        self._began_s: float | None = None
        self._done = 0.0
        self._earlier = 0
        self._reached_s = 0.0
        self._end = float(epochs)
        self._accuracies: Sequence[float] | None = None
        """Those that the end was last forecast from."""

    def began(self, now_s: float) -> None:
        """Note that the first step begins; later calls change nothing."""
        if self._began_s is None:
            self._began_s = now_s

    def reached(self, now_s: float, accuracies: Sequence[float], fraction: float, earlier: int = 0) -> None:
        """Note that epochs with these accuracies are complete, and a fraction of the next one.

        The first `earlier` of them were trained before this training began: they add to the epochs
        and the patience, and not to the pace.
        """
        self._earlier = earlier
        self._done = len(accuracies) + fraction
        self._reached_s = now_s
        if accuracies is not self._accuracies:
            self._accuracies = accuracies
            self._end = len(accuracies) + epochs_left(accuracies, self._epochs, self._patience)

    def seconds_left(self, now_s: float) -> float | None:
        """Seconds until the earliest end; None while nothing is known."""
        if self._began_s is None or self._done <= self._earlier:
            return None
        per_epoch = (self._reached_s - self._began_s) / (self._done - self._earlier)
        return max(0.0, per_epoch * (self._end - self._done) - (now_s - self._reached_s))
