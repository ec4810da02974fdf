"""Detection by cells and reconstruction: labels by hand, losses and quality by plain loops."""

from math import log2
from typing import Any

import keras
import numpy as np
import pytest
from numpy.typing import NDArray

from replica.trainer.model.builder import set_up
from replica.trainer.tasks.detection.precision import FIELDS
from replica.trainer.tasks.semi_supervised import SemiSupervised, boxes_of, label_cells
from tests.support.trainings.tasks import SMALL, examples
from workloads.settings.semi_supervised import OFFICIAL, REHEARSAL

Array = NDArray[Any]
SETTINGS = SMALL["semi_supervised"]
"""Images of 48 x 64: 6 x 8 cells of 8 pixels."""


def array(tensor: Any) -> Array:
    found: Array = np.asarray(keras.ops.convert_to_numpy(tensor))
    return found


def rows_of(*boxes: tuple[float, ...]) -> Array:
    """Rows (1, 15, 5) of one image."""
    rows = np.full((1, SETTINGS.boxes, 5), -1, np.float32)
    rows[0, : len(boxes)] = np.reshape(boxes, (-1, 5))
    return rows


def test_cells_and_layers_are_those_of_15pf() -> None:
    assert (OFFICIAL.cell, OFFICIAL.grid) == (32, (24, 24))
    assert OFFICIAL.decoder == ((768, 4), (512, 7), (256, 7), (96, 7), (16, 7))
    assert (REHEARSAL.cell, REHEARSAL.grid, REHEARSAL.decoder) == (8, (12, 18), ((48, 4), (24, 7), (16, 7)))


def test_the_cell_of_a_boxs_centre_has_its_labels() -> None:
    # Centre y 19, x 30: row 2, column 3; 6 pixels right and 3 down of the cell's corner.
    first = (15.0, 26.0, 23.0, 34.0, 2.0)
    # Centre y 3, x 60: row 0, column 7; 4 high and 16 wide.
    second = (1.0, 52.0, 5.0, 68.0, 1.0)
    labels = label_cells(rows_of(first, second), SETTINGS)
    holds = array(labels.holds)
    assert np.flatnonzero(holds[0]).tolist() == [7, 2 * 8 + 3]
    assert array(labels.classes)[0, [7, 19]].tolist() == [1, 2]
    np.testing.assert_allclose(array(labels.offsets)[0, [7, 19]], [[0.5, 0.375], [0.75, 0.375]])
    np.testing.assert_allclose(array(labels.sizes)[0, [7, 19]], [[1, -1], [0, 0]])
    for values in (labels.classes, labels.offsets, labels.sizes):
        assert not array(values)[~holds].any(), "empty cells have none"


def test_boxes_that_share_a_cell_and_boxes_on_the_edge() -> None:
    one, other = (16.0, 16.0, 24.0, 24.0, 3.0), (17.0, 17.0, 22.0, 22.0, 0.0)
    labels = label_cells(rows_of(other, one), SETTINGS)
    assert array(labels.classes)[0, 18] == 0, "the first row"
    np.testing.assert_allclose(array(labels.sizes)[0, 18], [log2(5 / 8)] * 2, rtol=1e-6)
    edge = label_cells(rows_of((40.0, 56.0, 56.0, 72.0, 1.0)), SETTINGS)
    assert np.flatnonzero(array(edge.holds)[0]).tolist() == [47]
    np.testing.assert_allclose(array(edge.offsets)[0, 47], [1, 1])
    assert not array(label_cells(rows_of(), SETTINGS).holds).any()


def test_cells_with_true_labels_stand_for_the_true_boxes() -> None:
    _, targets = examples("semi_supervised", 6, seed=4)
    labels = label_cells(targets[:, :-1], SETTINGS)
    found, holds, classes = (
        array(each) for each in (boxes_of(labels.offsets, labels.sizes, SETTINGS), labels.holds, labels.classes)
    )
    for image, rows in enumerate(targets[:, :-1]):
        wanted = sorted(map(tuple, rows[rows[:, 4] >= 0].tolist()))
        made = np.concatenate([found[image], classes[image][:, None]], axis=1)[holds[image]]
        np.testing.assert_allclose(
            np.reshape(sorted(map(tuple, made.tolist())), (-1, 5)), np.reshape(wanted, (-1, 5)), atol=1e-3
        )
    far = array(boxes_of(np.full((1, 48, 2), -9.0, np.float32), np.full((1, 48, 2), 90.0, np.float32), SETTINGS))
    assert np.isfinite(far).all()
    assert (far >= 0).all() and (far <= [48, 64, 48, 64]).all()


@pytest.fixture(scope="module")
def task() -> SemiSupervised:
    set_up("float32", seed=1)
    return SemiSupervised(SETTINGS)


def cross_entropy(logits: Array, label: int) -> float:
    powers = np.exp(logits - logits.max())
    return float(-np.log(powers[label] / powers.sum()))


def smooth_l1(error: float) -> float:
    return 0.5 * error**2 if abs(error) < 1 else abs(error) - 0.5


def loss_by_loops(outputs: list[Array], image: Array, target: Array) -> float:
    """The loss of one image from its outputs (rows, columns, ...), by the specification."""
    classes, objects, offsets, sizes, made = (each.astype(np.float64) for each in outputs)
    height, width = image.shape[:2]
    total = 0.2 / (height * width) * 0.5 * float(np.sum((made - image) ** 2))
    if target[-1, 0] != 1:
        return float(total)
    owners: dict[tuple[int, int], Array] = {}
    for row in target[:-1]:
        if row[4] >= 0:
            y, x = (row[0] + row[2]) / 16, (row[1] + row[3]) / 16
            owners.setdefault((min(int(y), height // 8 - 1), min(int(x), width // 8 - 1)), row.astype(np.float64))
    for y, x in np.ndindex(height // 8, width // 8):
        own = (y, x) in owners
        total += cross_entropy(objects[y, x], int(own)) * (1 if own else 0.5)
    for (y, x), row in owners.items():
        place = ((row[1] + row[3]) / 16 - x, (row[0] + row[2]) / 16 - y)
        sides = (log2((row[3] - row[1]) / 8), log2((row[2] - row[0]) / 8))
        term = cross_entropy(classes[y, x], int(row[4]))
        term += 5 * sum(smooth_l1(float(offsets[y, x, axis]) - place[axis]) for axis in (0, 1))
        term += 7 * sum(smooth_l1(float(sizes[y, x, axis]) - sides[axis]) for axis in (0, 1))
        total += term / len(owners)
    return float(total)


def test_the_loss_is_that_of_plain_loops(task: SemiSupervised) -> None:
    inputs, targets = examples("semi_supervised", 4, seed=2)
    targets[2, :-1] = -1  # labelled, and without an event
    # Weights away from their start, at which the heads say nothing.
    rng = np.random.default_rng(1)
    for variable in task.network.trainable_variables:
        variable.assign(array(variable) + rng.normal(0, 0.1, variable.shape))
    (found,) = task.losses(inputs, targets)
    outputs = [array(each) for each in task.network(inputs, training=True)]
    assert np.abs(outputs[3]).max() > 1, "both parts of smooth L1"
    wanted = [loss_by_loops([each[n] for each in outputs], inputs[n], targets[n]) for n in range(4)]
    np.testing.assert_allclose(array(found), wanted, rtol=1e-4)


def quality_by_loops(detected: Array, truth: Array, least: float) -> float:
    """Mean average precision of detections (M, K, 6) and true boxes (M, B, 5), one at a time."""
    found = []
    for number in range(SETTINGS.classes):
        boxes = int((truth[..., 4] == number).sum())
        if not boxes:
            continue
        every = [(-row[4], image, row) for image, rows in enumerate(detected) for row in rows if row[5] == number]
        taken: set[tuple[int, int]] = set()
        points, hits = [], 0
        for count, (_, image, row) in enumerate(sorted(every, key=lambda each: each[0]), 1):
            best, place = 0.0, -1
            for index, box in enumerate(truth[image]):
                if box[4] == number:
                    height = max(0.0, min(row[2], box[2]) - max(row[0], box[0]))
                    width = max(0.0, min(row[3], box[3]) - max(row[1], box[1]))
                    areas = (row[2] - row[0]) * (row[3] - row[1]) + (box[2] - box[0]) * (box[3] - box[1])
                    overlap = height * width / (areas - height * width)
                    best, place = max((best, place), (overlap, index), key=lambda each: each[0])
            if best >= least and (image, place) not in taken:
                taken.add((image, place))
                hits += 1
                points.append((hits, count))
        precisions = [max(hit / count for hit, count in points[start:]) for start in range(len(points))]
        found.append(sum(precisions) / boxes)
    return float(np.mean(found))


def test_the_quality_is_that_of_plain_loops(task: SemiSupervised) -> None:
    inputs, targets = examples("semi_supervised", 6, seed=3)
    rows = array(task.rows(inputs, targets))
    split = 48 * FIELDS
    detected = rows[:, :split].reshape(6, 48, FIELDS)
    np.testing.assert_array_equal(rows[:, split:-1].reshape(6, 15, 5), targets[:, :-1])
    assert (np.diff(detected[..., 4], axis=1) <= 0).all(), "by falling score"
    rng = np.random.default_rng(2)
    for image, target in enumerate(targets):
        # Some are true boxes, moved, twice or of another class.
        for place, row in enumerate(np.repeat(target[target[:, 4] >= 0], 3, axis=0)):
            moved = row[:4] + rng.normal(0, 4, 4)
            moved[2:] = np.maximum(moved[2:], moved[:2] + 2)
            kind = row[4] if rng.random() < 0.7 else rng.integers(4)
            detected[image, 2 * place] = (*moved, detected[image, 2 * place, 4], kind)
    measures = task.measures(rows)
    for least in (0.1, 0.5):
        wanted = quality_by_loops(detected.astype(np.float64), targets[:, :-1].astype(np.float64), least)
        assert 0.02 < wanted < 0.9
        assert measures[f"map@{least}"] == pytest.approx(wanted, abs=1e-9)


def test_the_reconstruction_error_is_the_mean_over_images_pixels_and_channels(task: SemiSupervised) -> None:
    inputs, targets = examples("semi_supervised", 3, seed=5)
    made = array(task.network(inputs, training=False)[-1])
    measures = task.measures(array(task.rows(inputs, targets)))
    assert measures["reconstruction_error"] == pytest.approx(np.mean((made - inputs) ** 2), rel=1e-4)
    nothing = task.measures(np.zeros((0, task.columns), np.float32))
    assert nothing == {"map@0.1": 0.0, "map@0.5": 0.0, "reconstruction_error": 0.0}
