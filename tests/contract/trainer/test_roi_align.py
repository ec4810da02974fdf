"""RoI-align on every framework, against plain loops."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from numpy.typing import NDArray

from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import Dense, Flatten, InputArray, Reshape, RoiAlign, ShapeError
from aiperf.network.operations import Operations, count
from aiperf.network.science import SCIENCE_1
from replica.measure.counting.keras_operations import count_model
from replica.trainer.frameworks import FRAMEWORKS
from replica.trainer.model.builder import build_model, check_model
from replica.trainer.model.built import architecture_of
from replica.trainer.model.roi_align import RoiAligned
from tests.support.folders import ROOT
from tests.support.trainings.installed import need_frameworks

Array = NDArray[np.float32]

BINS, SAMPLES, STRIDE = 3, 2, 4

PROGRAM = """
import sys
import numpy as np
from aiperf.frameworks import import_lean
ops = import_lean("keras").ops
from replica.trainer.model.roi_align import RoiAligned
given = np.load(sys.argv[1])
layer = RoiAligned(*map(int, given["settings"]))
found = layer([ops.convert_to_tensor(given["features"]), ops.convert_to_tensor(given["boxes"])])
np.save(sys.argv[2], ops.convert_to_numpy(found))
"""


def interpolated(image: Array, row: float, column: float) -> Array:
    """The value between the centres of four cells."""
    row, column = (min(max(at, 0.0), size - 1.0) for at, size in zip((row, column), image.shape[:2], strict=True))
    value = np.zeros(image.shape[2], np.float64)
    for y in range(image.shape[0]):
        for x in range(image.shape[1]):
            value += max(0.0, 1 - abs(row - y)) * max(0.0, 1 - abs(column - x)) * image[y, x]
    return value.astype(np.float32)


def by_loops(features: Array, boxes: Array) -> Array:
    found = np.zeros((*boxes.shape[:2], BINS, BINS, features.shape[3]), np.float32)
    for n, r, i, j in np.ndindex(*found.shape[:4]):
        top, left, bottom, right = boxes[n, r] / STRIDE
        high, wide = (bottom - top) / BINS, (right - left) / BINS
        for a, b in np.ndindex(SAMPLES, SAMPLES):
            row = top + (i + (a + 0.5) / SAMPLES) * high - 0.5
            column = left + (j + (b + 0.5) / SAMPLES) * wide - 0.5
            found[n, r, i, j] += interpolated(features[n], row, column) / SAMPLES**2
    return found


def examples() -> tuple[Array, Array]:
    random = np.random.default_rng(7)
    features = random.normal(size=(2, 6, 9, 5)).astype(np.float32)
    corners = random.uniform(0, 18, (2, 4, 2))
    boxes = np.concatenate([corners, corners + random.uniform(0.1, 17, (2, 4, 2))], axis=-1)
    boxes[0, 0] = (0, 0, 6 * STRIDE, 9 * STRIDE)  # the whole image
    boxes[1, 0] = (-5, -3, 40, 60)  # beyond it on all sides
    boxes[1, 1] = (10, 10, 10, 10)  # a point
    return features, boxes.astype(np.float32)


@pytest.mark.parametrize("framework", tuple(FRAMEWORKS))
def test_every_framework_interpolates_as_plain_loops_do(framework: str, tmp_path: Path) -> None:
    need_frameworks(framework)
    features, boxes = examples()
    np.savez(tmp_path / "given.npz", features=features, boxes=boxes, settings=(BINS, SAMPLES, STRIDE))
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, str(tmp_path / "given.npz"), str(tmp_path / "found.npy")],
        env={**os.environ, "KERAS_BACKEND": framework, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "found.npy"), by_loops(features, boxes), atol=2e-6)


def test_coordinates_keep_their_bits_when_features_have_sixteen() -> None:
    features = np.zeros((1, 4, 512, 1), np.float32)
    features[0, :, 301:] = 1.0
    # 1203 is not a bfloat16, which has 8 bits: from 1200 the samples lie elsewhere.
    boxes = np.array([[[0, 1203, 16, 1205]]], np.float32)
    exact = by_loops(features, boxes)
    found = RoiAligned(BINS, SAMPLES, STRIDE, dtype="mixed_bfloat16")([features, boxes])
    assert keras.backend.standardize_dtype(found.dtype) == "bfloat16"
    np.testing.assert_allclose(keras.ops.convert_to_numpy(keras.ops.cast(found, "float32")), exact, atol=0.01)


def test_gradients_go_to_the_features_alone() -> None:
    import tensorflow as tf

    features, boxes = map(tf.constant, examples())
    with tf.GradientTape() as tape:
        tape.watch((features, boxes))
        total = tf.reduce_sum(RoiAligned(BINS, SAMPLES, STRIDE)([features, boxes]))
    to_features, to_boxes = tape.gradient(total, (features, boxes))
    assert to_boxes is None
    # The weights of a mean of interpolations add up to 1 in each bin and channel.
    assert float(tf.reduce_sum(to_features)) == pytest.approx(2 * 4 * 9 * 5, rel=1e-5)


def network() -> Architecture:
    return Architecture(
        (
            Node("in", InputArray((12, 16, 3))),
            Node("flat", Flatten(), ("in",)),
            Node("fc", Dense(20), ("flat",)),
            Node("boxes", Reshape((5, 4)), ("fc",)),
            Node("align", RoiAlign(BINS, SAMPLES, STRIDE), ("in", "boxes")),
        )
    )


def test_a_network_with_it_counts_the_same_in_both_ways_and_reads_back() -> None:
    counted = count(network(), SCIENCE_1)
    # R P P C (9 S S + 4)
    assert counted.layers[-1].operations == Operations(5 * 9 * 3 * (9 * 4 + 4), 0)
    model = build_model(network())
    check_model(model, network())
    assert count_model(model, SCIENCE_1).layers[-1] == counted.layers[-1]
    assert architecture_of(model, network()) == network()
    again: Any = keras.Model.from_config(model.get_config(), custom_objects={"RoiAligned": RoiAligned})
    assert architecture_of(again, network()) == network()


def test_boxes_of_another_shape_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"needs boxes of shape \(regions, 4\), got \(5, 3\)"):
        RoiAlign().output_shape(((8, 8, 3), (5, 3)))
    with pytest.raises(ValueError, match="bins is 0; it must be at least 1"):
        RoiAlign(bins=0)
