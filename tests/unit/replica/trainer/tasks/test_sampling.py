"""Which anchors and regions train: matching, random order, samples."""

from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from replica.trainer.tasks.detection.boxes import Sample, packed, pick, random_order, sample
from replica.trainer.tasks.detection.task import match, propose, truth_of
from workloads.settings.detection import REHEARSAL, Sampling

Array = NDArray[Any]


def array(tensor: Any) -> Array:
    found: Array = np.asarray(keras.ops.convert_to_numpy(tensor))
    return found


def test_orders_are_permutations_that_differ_between_draws_and_streams() -> None:
    draws = np.array([0.0, 0.5, 0.5 + 2**-24], np.float32)
    orders = array(random_order(draws, 5000, 0))
    assert orders.dtype == np.int32
    assert all(len(set(row)) == 5000 for row in orders.tolist())
    ranks = orders.argsort(axis=1)
    between: Array = np.array(np.corrcoef(ranks))
    assert abs(between[np.triu_indices(3, 1)]).max() < 0.05
    other = array(random_order(draws[:1], 5000, 1)).argsort(axis=1)
    assert abs(np.corrcoef(ranks[0], other[0])[0, 1]) < 0.05
    np.testing.assert_array_equal(array(random_order(draws[1:2], 5000, 0))[0], orders[1])


def test_every_place_is_drawn_about_as_often() -> None:
    draws = np.random.default_rng(1).random(4000).astype(np.float32)
    first = array(random_order(draws, 10, 0)).argmax(axis=1)
    counts = np.bincount(first, minlength=10)
    # 400 expected; five standard deviations of a binomial are 95.
    assert abs(counts - 400).max() < 95


def test_picked_ones_are_allowed_and_first_in_the_order() -> None:
    allowed = np.array([[True, False, True, True], [False, False, True, False]])
    order = np.array([[3, 9, -5, 7], [1, 2, 3, 4]], np.int32)
    indices, real = map(array, pick(allowed, order, 2))
    assert indices[0].tolist() == [3, 0]
    assert indices[1, 0] == 2
    assert real.tolist() == [[True, True], [True, False]]


def chosen(positive: Array, negative: Array, wanted: Sampling) -> Sample:
    order = random_order(np.array([0.3], np.float32), positive.shape[1], 0)
    found = sample(positive, negative, order, wanted)
    return Sample(array(found.indices), array(found.used), array(found.positive))


def test_samples_have_their_share_and_are_filled_up() -> None:
    wanted = Sampling(16, 0.25, 0.5, 0.5, best_of_box=False)
    for positives, negatives, expected in ((10, 30, (4, 12)), (2, 30, (2, 14)), (10, 3, (4, 3)), (0, 0, (0, 0))):
        positive = np.arange(40)[None] < positives
        negative = np.arange(40)[None] >= 40 - negatives
        found = chosen(positive, negative, wanted)
        taken = found.indices[found.used]
        assert len(set(taken.tolist())) == len(taken), "no example twice"
        assert (found.positive.sum(), found.used.sum()) == (expected[0], sum(expected))
        assert positive[0][found.indices[found.positive]].all()
        assert negative[0][found.indices[found.used & ~found.positive]].all()
        tight = packed(found, 16)
        count = sum(expected)
        assert array(tight.used)[0].tolist() == [True] * count + [False] * (16 - count)
        assert sorted(array(tight.indices)[0, :count].tolist()) == sorted(taken.tolist())
        assert array(tight.positive).sum() == expected[0]


def test_targets_are_read_with_their_unused_rows() -> None:
    targets = np.full((2, *REHEARSAL.target_shape), -1, np.float32)
    targets[0, 0] = (1, 2, 3, 4, 3)
    targets[0, -1, 0] = 0.75
    truth = truth_of(targets)
    assert array(truth.valid).sum() == 1
    assert array(truth.boxes)[0, 0].tolist() == [1, 2, 3, 4]
    assert not array(truth.boxes)[1].any()
    assert array(truth.classes)[0, :2].tolist() == [3, 0]
    assert array(truth.draws).tolist() == [0.75, 0]


def test_anchors_match_by_overlap_and_the_best_of_each_box_counts() -> None:
    targets = np.full((2, 4, 5), -1, np.float32)
    targets[0, 0] = (0, 0, 10, 10, 1)
    targets[0, 1] = (50, 50, 60, 90, 2)
    candidates = np.array(
        [
            [0, 0, 10, 9],  # 0.9 of the first box
            [0, 0, 10, 5],  # 0.5 of it
            [5, 5, 15, 15],  # 25 / 175 of it
            [50, 50, 60, 60],  # a quarter of the second, and the best that it has
            [70, 0, 80, 10],  # of none
        ],
        np.float32,
    )
    truth = truth_of(targets)
    matches = match(candidates, truth, REHEARSAL.anchors)
    assert array(matches.positive).tolist() == [[True, False, False, True, False], [False] * 5]
    assert array(matches.negative).tolist() == [[False, False, True, False, True], [True] * 5]
    assert array(matches.box)[0, [0, 3]].tolist() == [0, 1]
    of_regions = match(np.stack([candidates] * 2), truth, REHEARSAL.regions)
    assert array(of_regions.positive).tolist() == [[True, True, False, False, False], [False] * 5]
    assert array(of_regions.negative).tolist() == [[False, False, True, True, True], [True] * 5]


def test_proposals_are_the_best_ones_that_survive() -> None:
    rng = np.random.default_rng(5)
    corners = rng.uniform(-10, 120, (600, 2))
    anchors = np.concatenate([corners, corners + rng.uniform(5, 40, (600, 2))], axis=1).astype(np.float32)
    scores = rng.normal(size=(2, 600)).astype(np.float32)
    shifts = np.zeros((2, 600, 4), np.float32)
    boxes, real = map(array, propose(scores, shifts, anchors, REHEARSAL))
    assert boxes.shape == (2, REHEARSAL.proposals, 4)
    assert real.all()
    clipped = np.clip(anchors, 0, [96, 144, 96, 144]).astype(np.float32)
    for number in range(2):
        best = np.argsort(-scores[number])[: REHEARSAL.proposals_before]
        kept: list[Array] = []
        for box in clipped[best]:
            if np.prod(box[2:] - box[:2]) > 0 and all(_shared(box, other) <= 0.7 for other in kept):
                kept.append(box)
        np.testing.assert_allclose(boxes[number], kept[: REHEARSAL.proposals], atol=1e-3)


def _shared(one: Array, other: Array) -> float:
    from replica.trainer.tasks.detection.precision import overlaps

    return float(overlaps(one[None].astype(float), other[None].astype(float))[0, 0])


def test_missing_proposals_are_marked() -> None:
    anchors = np.tile(np.array([[0, 0, 20, 20]], np.float32), (300, 1))
    scores = np.linspace(1, 0, 300, dtype=np.float32)[None]
    boxes, real = map(array, propose(scores, np.zeros((1, 300, 4), np.float32), anchors, REHEARSAL))
    assert real[0].tolist() == [True] + [False] * (REHEARSAL.proposals - 1)
    assert boxes[0, 0].tolist() == [0, 0, 20, 20]
