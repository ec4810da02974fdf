"""Boxes, anchors, levels and suppression, against plain loops."""

from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from replica.trainer.model.roi_align import RoiAligned
from replica.trainer.tasks.detection.boxes import clip, decode, encode, overlap, survivors
from replica.trainer.tasks.detection.precision import overlaps
from replica.trainer.tasks.detection.task import anchors_of, cut, level_of, shapes_of
from workloads.settings.detection import OFFICIAL, REHEARSAL

Array = NDArray[Any]


def array(tensor: Any) -> Array:
    found: Array = np.asarray(keras.ops.convert_to_numpy(tensor))
    return found


def random_boxes(rng: np.random.Generator, *shape: int, size: float = 60) -> Array:
    corners = rng.uniform(0, size, (*shape, 2))
    return np.concatenate([corners, corners + rng.uniform(1, size / 2, (*shape, 2))], axis=-1).astype(np.float32)


def test_overlaps_by_hand() -> None:
    some = np.array([[0, 0, 2, 4], [1, 1, 1, 5]], np.float32)
    others = np.array([[0, 0, 2, 4], [1, 2, 3, 6], [2, 0, 4, 4], [1, 1, 1, 5]], np.float32)
    # Shared 1 x 2 of 8 + 8 - 2; boxes that touch share nothing, nor does an empty box with itself.
    expected = np.array([[1, 2 / 14, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_allclose(array(overlap(some, others)), expected, rtol=1e-6)
    np.testing.assert_allclose(overlaps(some.astype(float), others.astype(float)), expected)


def test_shifts_lead_back_to_the_box() -> None:
    rng = np.random.default_rng(1)
    boxes, references = random_boxes(rng, 3, 50), random_boxes(rng, 3, 50)
    for scales in (OFFICIAL.anchor_scales, OFFICIAL.region_scales):
        shifts = encode(boxes, references, scales)
        np.testing.assert_allclose(array(decode(shifts, references, scales, 62.5)), boxes, atol=1e-3)


def test_shifts_by_hand_and_their_limits() -> None:
    reference, box = (np.array([each], np.float32) for each in ((0, 0, 10, 20), (5, 10, 25, 20)))
    # The centre moves from (5, 10) to (15, 15); the height doubles, the width halves.
    wanted = [[1 / 0.1, 0.25 / 0.1, np.log(2) / 0.2, np.log(0.5) / 0.2]]
    np.testing.assert_allclose(array(encode(box, reference, OFFICIAL.region_scales)), wanted, rtol=1e-6)
    grown = array(decode(np.array([[0, 0, 9, 0]], np.float32), reference, OFFICIAL.anchor_scales, 4.0))
    np.testing.assert_allclose(grown, [[-15, 0, 25, 20]], rtol=1e-6)
    np.testing.assert_array_equal(array(clip(grown, (12, 18))), [[0, 0, 12, 18]])


def test_anchors_are_centred_on_their_cells() -> None:
    anchors = anchors_of(REHEARSAL)
    counts = [96 // 4 * 144 // 4 * 3, 96 // 8 * 144 // 8 * 3]
    assert anchors.shape == (sum(counts), 4)
    # Row 2, column 5, ratio 1 of the finest level; the first cell of the next one, ratio 1/2.
    np.testing.assert_allclose(anchors[(2 * 36 + 5) * 3 + 1], [10 - 6, 22 - 6, 10 + 6, 22 + 6])
    height, width = 32 * np.sqrt([0.5, 2])
    half = np.array([height, width]) / 2
    np.testing.assert_allclose(anchors[counts[0]], [*(4 - half), *(4 + half)], rtol=1e-6)
    shapes = shapes_of(64, OFFICIAL.ratios)
    np.testing.assert_allclose(shapes.prod(axis=1), 64**2)
    np.testing.assert_allclose(shapes[:, 0] / shapes[:, 1], OFFICIAL.ratios)
    assert len(anchors_of(OFFICIAL)) == 3 * (192 * 288 + 96 * 144 + 48 * 72 + 24 * 36 + 12 * 18)


def test_regions_go_to_the_level_of_the_published_rule() -> None:
    # Lin et al. 2017, equation 1: floor(4 + log2(sqrt(w h) / 224)), within levels 2 to 5.
    rng = np.random.default_rng(2)
    sides = np.concatenate([2 ** rng.uniform(2, 10.5, (500, 2)), [[112, 112], [224, 224], [448, 448], [64, 196]]])
    boxes = np.concatenate([np.zeros_like(sides), sides], axis=1).astype(np.float32)[None]
    wanted = np.clip(np.floor(4 + np.log2(np.sqrt(sides.prod(axis=1)) / 224)), 2, 5)
    found = array(level_of(boxes, OFFICIAL))[0] + 2
    np.testing.assert_array_equal(found, wanted)
    assert found[-4:].tolist() == [3, 4, 5, 3]
    small = np.array([[[0, 0, 23.9, 24], [0, 0, 24, 24], [0, 0, 1, 1], [0, 0, 96, 144]]], np.float32)
    assert array(level_of(small, REHEARSAL)).tolist() == [[0, 1, 0, 1]]


def test_features_of_a_region_are_those_of_its_level_alone() -> None:
    rng = np.random.default_rng(3)
    levels = [rng.normal(size=(2, 96 // stride, 144 // stride, 5)).astype(np.float32) for stride in REHEARSAL.strides]
    boxes = random_boxes(rng, 2, 40)
    found = array(cut(levels, boxes, REHEARSAL)).reshape(2, 40, REHEARSAL.bins, REHEARSAL.bins, 5)
    own = array(level_of(boxes, REHEARSAL))
    assert set(own.reshape(-1)) == {0, 1}
    for number, (level, stride) in enumerate(zip(levels, REHEARSAL.strides, strict=True)):
        alone = array(RoiAligned(REHEARSAL.bins, REHEARSAL.samples, stride)([level, boxes]))
        np.testing.assert_allclose(found[own == number], alone[own == number], atol=1e-5)


def greedy(boxes: Array, valid: Array, most: float) -> list[bool]:
    """The loop that suppression is defined by, on boxes from best to worst."""
    shared = overlaps(boxes.astype(np.float64), boxes.astype(np.float64))
    kept: list[int] = []
    for place in range(len(boxes)):
        if valid[place] and not any(shared[place, better] > most for better in kept):
            kept.append(place)
    return [place in kept for place in range(len(boxes))]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.1, 0.5, 0.7]), st.sampled_from([8.0, 30.0, 60.0]))
def test_suppression_is_the_greedy_loop(seed: int, most: float, spread: float) -> None:
    rng = np.random.default_rng(seed)
    # Eighths, so that an overlap that is the limit itself is so in 32 bits, too.
    boxes = np.round(random_boxes(rng, 2, 24, size=spread) * 8) / 8
    valid = rng.random((2, 24)) < 0.9
    for image in boxes.astype(np.float64):
        shared = overlaps(image, image)
        assume(not np.any((abs(shared - most) < 1e-5) & (shared != most)))
    found = array(survivors(boxes.astype(np.float32), valid, most))
    assert found.tolist() == [greedy(*each, most) for each in zip(boxes, valid, strict=True)]


def test_a_long_chain_of_suppression_is_followed_to_its_end() -> None:
    # Each box overlaps the next one by more than half: every second one stays.
    starts = np.arange(40.0)
    boxes = np.stack([starts, np.zeros(40), starts + 4, np.full(40, 4.0)], axis=1).astype(np.float32)
    assert array(survivors(boxes[None], np.ones((1, 40), bool), 0.5))[0].tolist() == [True, False] * 20


def test_nothing_valid_leaves_nothing() -> None:
    boxes = np.zeros((1, 5, 4), np.float32)
    assert not array(survivors(boxes, np.zeros((1, 5), bool), 0.5)).any()


@pytest.mark.parametrize("sizes", [OFFICIAL, REHEARSAL])
def test_an_image_has_enough_candidates(sizes: Any) -> None:
    assert sizes.regions.total <= sizes.proposals + sizes.boxes
    assert sizes.proposals <= sizes.proposals_before <= len(anchors_of(sizes))
    assert sizes.detections <= sizes.proposals * sizes.classes
