"""Detection as a whole: what an evaluation keeps, and what the losses are made of."""

from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
from numpy.typing import NDArray

from replica.trainer.model.builder import set_up
from replica.trainer.model.objectives import cross_entropy_of_logits
from replica.trainer.tasks.detection.boxes import cross_entropy, decode, mean_of, shift_loss, smooth_l1
from replica.trainer.tasks.detection.precision import overlaps
from replica.trainer.tasks.detection.task import Detection, detect
from tests.support.trainings.tasks import SMALL, rectangles
from workloads.settings.detection import REHEARSAL

Array = NDArray[Any]


def array(tensor: Any) -> Array:
    found: Array = np.asarray(keras.ops.convert_to_numpy(tensor))
    return found


def by_loops(logits: Array, shifts: Array, boxes: Array, real: Array, most: int) -> list[tuple[float, ...]]:
    """Detections of one image as (box, score, class), best first."""
    powers = np.exp(logits.astype(np.float64))
    scores = powers / powers.sum(axis=1, keepdims=True)
    scales = REHEARSAL.region_scales
    found: list[tuple[float, ...]] = []
    for number in range(REHEARSAL.classes):
        moved = np.clip(array(decode(shifts[:, number], boxes, scales, 62.5)), 0, [96, 144, 96, 144])
        kept: list[Array] = []
        for region in np.argsort(-scores[:, number]):
            box, score = moved[region].astype(np.float64), scores[region, number]
            if real[region] and score > 0.05 and all(overlaps(box[None], each[None])[0, 0] <= 0.5 for each in kept):
                kept.append(box)
                found.append((*box, float(score), float(number)))
    return sorted(found, key=lambda each: -each[4])[:most]


@pytest.mark.parametrize("most", [100, 10])
def test_detections_are_those_of_plain_loops(most: int) -> None:
    rng = np.random.default_rng(1)
    corners = rng.uniform(0, 70, (2, 32, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(10, 60, (2, 32, 2))], axis=-1).astype(np.float32)
    logits = rng.normal(0, 1.5, (2, 32, 5)).astype(np.float32)
    shifts = rng.normal(0, 1, (2, 32, 4, 4)).astype(np.float32)
    real = np.arange(32) < np.array([[32], [20]])
    found = array(detect(logits, shifts, (boxes, real), replace(REHEARSAL, detections=most)))
    assert found.shape == (2, most, 6)
    for number in range(2):
        wanted = by_loops(logits[number], shifts[number], boxes[number], real[number], most)
        used = found[number][found[number, :, 4] > 0]
        np.testing.assert_allclose(used, wanted, atol=1e-3)
        assert (len(used) == most) == (most == 10)


def single(*numbers: Any) -> Array:
    return np.array(numbers, np.float32)


def test_losses_by_hand() -> None:
    found = array(smooth_l1(single(-3, -1, -0.5, 0, 0.5, 2), 1.0))
    np.testing.assert_allclose(found, [2.5, 0.5, 0.125, 0, 0.125, 1.5])
    np.testing.assert_allclose(array(smooth_l1(single(0.1, 1), 0.5)), [0.01, 0.75])
    assert array(shift_loss(np.full((1, 1, 4), 2.0), np.zeros((1, 1, 4)), 1.0)).tolist() == [[6.0]]
    logits = np.log(single([[0.2, 0.3, 0.5]])) + 7
    np.testing.assert_allclose(array(cross_entropy(logits, np.array([[1]]))), [[-np.log(0.3)]], rtol=1e-5)
    many, labels = single(-80, 0, 2, 80), single(1, 0, 1, 0)
    wanted = np.log1p(np.exp(many.astype(np.float64))) - many * labels
    np.testing.assert_allclose(array(cross_entropy_of_logits(many, labels)), wanted, rtol=1e-5)
    values, some, all_of_them = single([1, 2, 4]), np.array([[True, False, True]]), np.ones((1, 3), bool)
    assert array(mean_of(values, some, all_of_them)).tolist() == pytest.approx([5 / 3])
    assert array(mean_of(values, ~all_of_them, ~all_of_them)).tolist() == [0]


@pytest.fixture(scope="module")
def task() -> Detection:
    set_up("float32", seed=1)
    return Detection(SMALL["detection"])


def rows_with(task: Detection, detections: list[Any], truth: Array) -> Array:
    row = np.zeros((1, task.columns), np.float32)
    row[0, : 6 * len(detections)] = np.reshape(detections, -1)
    row[0, -truth.size :] = truth.reshape(-1)
    return row


def test_measures_are_read_from_rows(task: Detection) -> None:
    _, targets = rectangles(SMALL["detection"], 3, seed=4)
    perfect, none = [], []
    for target in targets:
        boxes = [row for row in target[:-1] if row[4] >= 0]
        perfect.append(rows_with(task, [(*row[:4], 0.9, row[4]) for row in boxes], target[:-1]))
        none.append(rows_with(task, [(*row[:4], 0.9, (row[4] + 1) % 4) for row in boxes], target[:-1]))
    assert task.measures(np.concatenate(perfect)) == {"map@0.5": 1.0, "map@0.1": 1.0}
    assert task.measures(np.concatenate(none))["map@0.5"] < 0.5
    assert task.measures(perfect[0][:0]) == {"map@0.5": 0.0, "map@0.1": 0.0}
    box = targets[0, 0]
    shifted = [(box[0] + 0.5 * (box[2] - box[0]), box[1], box[2] + 0.5 * (box[2] - box[0]), box[3], 0.9, box[4])]
    alone = np.full_like(targets[0, :-1], -1)
    alone[0] = box
    # Half of the box is found, so a third of the union.
    assert task.measures(rows_with(task, shifted, alone)) == {"map@0.5": 0.0, "map@0.1": 1.0}


def test_true_boxes_reach_the_rows_as_they_are(task: Detection) -> None:
    inputs, targets = rectangles(SMALL["detection"], 2, seed=5)
    rows = array(task.rows(inputs, targets))
    np.testing.assert_array_equal(rows[:, -75:].reshape(2, 15, 5), targets[:, :-1])
    found = rows[:, :-75].reshape(2, 100, 6)
    assert (np.diff(found[..., 4], axis=1) <= 0).all(), "by falling score"
    assert set(found[found[..., 4] > 0][:, 5]) <= {0, 1, 2, 3}


def test_images_without_boxes_train_and_measure(task: Detection) -> None:
    inputs, targets = rectangles(SMALL["detection"], 2, seed=6)
    targets[:] = -1
    (losses,) = task.losses(inputs, targets)
    assert np.isfinite(array(losses)).all()
    assert task.measures(array(task.rows(inputs, targets))) == {"map@0.5": 0.0, "map@0.1": 0.0}


def test_another_draw_samples_other_anchors(task: Detection) -> None:
    inputs, targets = rectangles(SMALL["detection"], 2, seed=7)
    other = targets.copy()
    other[1, -1, 0] = (other[1, -1, 0] + 0.5) % 1
    one, two = (array(task.losses(inputs, each)[0]) for each in (targets, other))
    assert one[0] == pytest.approx(two[0], rel=1e-5)
    assert one[1] != two[1]


def test_the_networks_are_called_one_by_one(task: Detection) -> None:
    with pytest.raises(NotImplementedError, match="one by one"):
        task.network.call(np.zeros((1, 2)))
