"""Reference convergence: its file, and the points that reference trainings give."""

from itertools import pairwise
from math import exp, sqrt

import numpy as np
import pytest

from aiperf.config.datasets import DATASETS
from aiperf.rules.convergence import DEVIATIONS, Point, Reference, points_of, references


def test_more_work_allows_a_lower_error_in_every_reference() -> None:
    assert set(references()) <= set(DATASETS)
    for reference in references().values():
        assert reference.source
        for before, after in pairwise(reference.points):
            assert before.epochs < after.epochs
            assert (before.error, before.least) >= (after.error, after.least)
            assert before.least >= after.least
        assert all(point.least < point.error for point in reference.points)


def test_between_two_points_the_later_one_counts_and_beyond_the_last_none() -> None:
    points = (Point(epochs=2, error=0.4, least=0.3), Point(epochs=4, error=0.2, least=0.1))
    found = Reference(source="", points=points).least(np.array([0.5, 2.0, 2.1, 4.0, 4.1]))
    assert found.tolist() == [0.3, 0.3, 0.1, 0.1, 0.0]


def test_a_point_is_the_lowest_error_by_then_and_its_band_is_that_of_the_images() -> None:
    trainings = [
        [(1.0, 90, 100), (2.5, 36, 100), (3.0, 49, 100)],
        [(1.5, 90, 100), (2.5, 36, 100), (3.5, 30, 100)],
        *[[(1.0, 90, 100), (3.0, 36, 100)]] * 3,
        [(1.2, 90, 100)],
    ]
    points = points_of(trainings, [0.5, 2, 3, 9])
    assert [point.epochs for point in points] == [2, 3], "none has an epoch by 0.5; one goes beyond 3"
    assert [point.error for point in points] == [0.9, 0.36]
    assert points[1].least == pytest.approx(0.36 * exp(-DEVIATIONS / sqrt(36))), "all have the same error: no spread"


def test_a_spread_of_trainings_makes_the_band_wider() -> None:
    trainings = [[(1.0, wrong, 10_000)] for wrong in (4_000, 5_000, 6_000, 7_000, 8_000)]
    (point,) = points_of(trainings, [1])
    assert 0 < point.least < 0.4 * exp(-DEVIATIONS / sqrt(4_000))
