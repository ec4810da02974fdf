"""The distance between architectures."""

import random

import numpy as np
import pytest

from aiperf.network.architecture import Architecture
from replica.search.demo.architectures import random_history
from replica.search.distance import DistanceTable
from search_space.limits import growth_limits
from search_space.morphisms import (
    AddSkip,
    Deepen,
    EnlargeKernel,
    Widen,
)
from search_space.resnet import resnet

INITIAL = resnet(50, 32, 10)


LIMITS = growth_limits(INITIAL, 4.0, None, 64, 4)


POOL = random_history(INITIAL, LIMITS, 60, random.Random(1))


def plain_edit_distance(one: list[str], other: list[str]) -> int:
    """Levenshtein with costs of 1, as in every textbook."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def words(architecture: Architecture) -> list[str]:
    return [str(node.layer) for node in architecture.nodes if node.layer.kind in ("conv", "dense")]


def test_the_distance_of_a_morph_is_what_it_changes() -> None:
    table = DistanceTable()
    deeper, wider = Deepen("relu1").apply(INITIAL), Widen("s2b1_a", 128).apply(INITIAL)
    larger, skipped = EnlargeKernel("s2b1_b").apply(INITIAL), AddSkip("s2b1_relu", "s2b3_relu").apply(INITIAL)
    found = table.distances(INITIAL, [INITIAL, deeper, wider, larger, skipped])
    assert found[0] == 0.0
    assert 1.0 <= found[1] < 2.5, "an inserted layer, and skip connections one layer later"
    assert found[2] == pytest.approx(1 - 64 / 128)
    assert found[3] == pytest.approx(1 - 3 / 5)
    assert found[4] == pytest.approx(1.0), "one more skip connection"


def test_the_distance_is_a_metric_on_a_history() -> None:
    table = DistanceTable()
    matrix = np.stack([DistanceTable().distances(one, POOL[:20]) for one in POOL[:20]])
    assert np.array_equal(matrix, matrix.T)
    assert np.array_equal(matrix[3], table.distances(POOL[3], POOL[:20])), "cached and uncached alike"
    assert np.all(np.diag(matrix) == 0)
    assert np.all(matrix[~np.eye(20, dtype=bool)] > 0)
    assert np.all(matrix[:, None, :] <= matrix[:, :, None] + matrix[None, :, :] + 1e-8)


def test_the_vectorised_edit_distance_is_the_textbooks_where_costs_are_equal() -> None:
    # Tripling a width or more and changing a kernel costs 1, as in the textbook; insertions do so
    # always.
    for one, other in ((INITIAL, resnet(101, 32, 10)), (resnet(101, 32, 10), resnet(152, 32, 10))):
        expected = plain_edit_distance(words(one), words(other))
        table = DistanceTable()
        both = table.distances(one, [other, one, other])[0]
        assert expected <= both, "skip connections come on top"
        assert table.distances(other, [one])[0] == both
