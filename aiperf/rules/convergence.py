"""Reference convergence: how low an error honest trainings reach with how much work.

The idea is MLPerf's: a training that converges faster than all reference trainings, by more than
their spread, is looked at. Work is operations, not time, so that no machine matters. It is counted
in epochs of the initial architecture, and includes that of the trainings whose weights were
inherited.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import pairwise
from math import exp, log, sqrt
from statistics import stdev

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from aiperf.config.toml_text import parse_toml

Floats = NDArray[np.float64]

DEVIATIONS = 4.0
"""Width of a band in standard deviations of the logarithm of the error."""

FEWEST = 5
"""Trainings that a point rests on."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Point(_Part):
    """The lowest error of reference trainings with this work, and the lowest that is believed."""

    epochs: float = Field(gt=0)
    error: float = Field(gt=0, lt=1)
    least: float = Field(gt=0, lt=1)


class Reference(_Part):
    """The reference trainings of a data set, by work."""

    source: str
    points: tuple[Point, ...] = Field(min_length=1)

    def least(self, epochs: Floats) -> Floats:
        """The lowest error that is believed of trainings with this work, (n,); 0 beyond the last.

        Between two points it is that of the later one: more work allows a lower error.
        """
        places = np.searchsorted([point.epochs for point in self.points], epochs)
        return np.array([*(point.least for point in self.points), 0.0])[places]


@cache
def references() -> Mapping[str, Reference]:
    """The references by name of the data set."""
    text = resources.files("aiperf.rules").joinpath("convergence.toml").read_text("utf-8")
    return {name: Reference.model_validate(entry) for name, entry in parse_toml(text).items()}


def points_of(trainings: Sequence[Sequence[tuple[float, int, int]]], at_epochs: Sequence[float]) -> list[Point]:
    """The points of reference trainings: (work in epochs, wrong images, evaluated images) of each.

    The band is `DEVIATIONS` standard deviations of the trainings' lowest errors by then, or of the
    images (Poisson), whichever is wider. A training counts if it got beyond the point before.
    Amounts of work with fewer than `FEWEST` such trainings are left out.
    """
    points: list[Point] = []
    for before, epochs in pairwise([0.0, *at_epochs]):
        reached = [
            best
            for training in trainings
            if training and training[-1][0] > before
            for best in (_best(training, epochs),)
            if best is not None
        ]
        if len(reached) < FEWEST:
            continue
        error, wrong = min(reached)
        spread = max(stdev(log(found) for found, _ in reached), 1 / sqrt(max(1, wrong)))
        # Fewer trainings go far: what others reached with less work stays the lowest.
        error, least = min([(error, error * exp(-DEVIATIONS * spread)), *((p.error, p.least) for p in points[-1:])])
        points.append(Point(epochs=epochs, error=error, least=min([least, *(point.least for point in points)])))
    return points


def _best(training: Sequence[tuple[float, int, int]], epochs: float) -> tuple[float, int] | None:
    """The lowest error by this much work, and its wrong images; None before the first epoch."""
    # Half an image stands for none, since 0 has no logarithm.
    known = [(max(wrong, 0.5) / images, wrong) for work, wrong, images in training if work <= epochs]
    return min(known, default=None)
