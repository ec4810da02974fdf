"""Semi-supervised detection as a task: an encoder whose code is read by heads and by a decoder.

Detection is by cells, next to a reconstruction, in `keras.ops` and with fixed shapes. Boxes are y
and x of the upper left corner, then of the lower right one, in pixels; offsets and sizes are x and
y, width and height, as in NERSC/climate-caffe.
"""

from dataclasses import dataclass
from math import log, log2, prod
from typing import Any

import numpy as np
from keras import ops
from numpy.typing import NDArray

from replica.trainer.model.builder import build_model, check_model
from replica.trainer.model.container import redraw
from replica.trainer.tasks.contract import Measures, Part
from replica.trainer.tasks.detection.boxes import SMALLEST_SIDE, clip, cross_entropy, mean_of, rows_of, smooth_l1
from replica.trainer.tasks.detection.precision import FIELDS, mean_precisions
from workloads.networks import climate_semi
from workloads.settings.semi_supervised import SemiSupervisedSettings

# True boxes as the labels of cells, and cells as boxes.
#
# Kurth et al. 2017, section III-B, after Redmon et al. 2016 ("You Only Look Once"): the cell that
# holds the centre of a box answers for it.


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of the cells of each image, row by row."""

    holds: Any
    """Flags of the cells that hold the centre of a box, (N, K)."""
    classes: Any
    """Classes, (N, K) int32; 0 in cells without a box."""
    offsets: Any
    """Offsets x and y of the centre from the cell's upper left corner, in cells, (N, K, 2)."""
    sizes: Any
    """Sizes: log2 of width and height, in cells, (N, K, 2)."""


def label_cells(rows: Any, settings: SemiSupervisedSettings) -> Labels:
    """The labels of rows (N, B, 5): ymin, xmin, ymax, xmax, class, negative if a row is unused.

    Of several boxes with their centres in one cell, the cell has the first one. A centre on the
    lower or right edge of the image is in the last cell.
    """
    height, width = settings.grid
    count = rows.shape[1]
    valid = rows[..., 4] >= 0.0
    boxes = ops.where(valid[..., None], rows[..., :4], 0.0) / settings.cell
    centres = 0.5 * (boxes[..., :2] + boxes[..., 2:])
    most = ops.convert_to_tensor((height - 1.0, width - 1.0), "float32")
    places = ops.clip(ops.floor(centres), 0.0, most)
    cells = ops.cast(places[..., 0] * width + places[..., 1], "int32")
    own = ops.logical_and(cells[..., None] == ops.arange(height * width, dtype="int32"), valid[..., None])
    # The first row has the highest number, and 0 is none.
    numbers = count - ops.arange(count, dtype="int32")
    highest = ops.max(ops.where(own, numbers[None, :, None], 0), axis=1)
    box = count - ops.maximum(highest, 1)
    sides = ops.maximum(boxes[..., 2:] - boxes[..., :2], SMALLEST_SIDE / settings.cell)
    offsets, sizes = (rows_of(ops.flip(values, axis=-1), box) for values in (centres - places, ops.log2(sides)))
    holds = highest > 0
    inside = holds[..., None]
    classes = ops.where(holds, ops.cast(rows_of(rows[..., 4], box), "int32"), 0)
    return Labels(holds, classes, ops.where(inside, offsets, 0.0), ops.where(inside, sizes, 0.0))


def corners(settings: SemiSupervisedSettings) -> NDArray[np.float32]:
    """The upper left corners x and y of all cells, in cells: (K, 2)."""
    height, width = settings.grid
    rows, columns = np.indices((height, width), np.float32)
    return np.stack([columns, rows], axis=-1).reshape(-1, 2)


def boxes_of(offsets: Any, sizes: Any, settings: SemiSupervisedSettings) -> Any:
    """The boxes (N, K, 4) in the image that offsets and sizes, (N, K, 2) each, stand for."""
    centres = ops.convert_to_tensor(corners(settings)) + offsets
    # No true box is larger than the image; exp of an early, wild output would be infinite.
    largest = log2(max(settings.image) / settings.cell)
    half = 0.5 * ops.exp(log(2.0) * ops.minimum(sizes, largest))
    found = ops.concatenate([ops.flip(centres - half, axis=-1), ops.flip(centres + half, axis=-1)], axis=-1)
    return clip(found * settings.cell, settings.image)


@dataclass(frozen=True, slots=True)
class Outputs:
    """The network's outputs for the K cells of each image, and its reconstruction; all float32."""

    classes: Any
    """Logits of the classes, (N, K, classes)."""
    objects: Any
    """Logits of no event and of an event, (N, K, 2)."""
    offsets: Any
    """Offsets of the centres, (N, K, 2)."""
    sizes: Any
    """Logarithms of the sides, (N, K, 2)."""
    image: Any
    """Reconstruction, (N, H, W, C)."""


class SemiSupervised:
    """Detection by cells, and reconstruction (Kurth et al. 2017, section III-B).

    Inputs are images (N, H, W, C); targets (N, B + 1, 5) hold the true boxes as the data set has
    them, ymin, xmin, ymax, xmax, class, then a row whose first number is 1 if the image has labels.
    Without them only the reconstruction counts. Unused rows have a negative class.
    """

    correct = None

    def __init__(self, settings: SemiSupervisedSettings) -> None:
        self._settings = settings
        architecture = climate_semi(settings)
        self.network = build_model(architecture)
        check_model(self.network, architecture)
        self._begin_with_few_events()
        self.parts = (Part("network", list(self.network.trainable_variables)),)
        self.input_shape = (*settings.image, settings.channels)
        self.target_shape = settings.target_shape
        self.columns = prod(settings.grid) * FIELDS + settings.boxes * 5 + 1

    def losses(self, inputs: Any, targets: Any) -> tuple[Any, ...]:
        """The weighted sum of the terms of each image, (N,)."""
        outputs = self._outputs(inputs, training=True)
        error = 0.5 * ops.sum(ops.square(outputs.image - inputs), axis=(1, 2, 3))
        share = self._settings.reconstruction_weight / prod(self._settings.image)
        return (self._of_cells(outputs, targets) + share * error,)

    def rows(self, inputs: Any, targets: Any) -> Any:
        """The rows: detections (box, score, class), true boxes, and the reconstruction's error.

        Every cell is a detection of its likeliest class; its score is the probability of an event.
        The error is the mean over pixels and channels.
        """
        outputs = self._outputs(inputs, training=False)
        cells = prod(self._settings.grid)
        scores, order = ops.top_k(ops.softmax(outputs.objects, axis=-1)[..., 1], cells)
        classes = ops.cast(ops.argmax(outputs.classes, axis=-1), "float32")
        boxes = boxes_of(outputs.offsets, outputs.sizes, self._settings)
        found = ops.concatenate([boxes, classes[..., None]], axis=-1)
        found = rows_of(found, ops.cast(order, "int32"))
        found = ops.concatenate([found[..., :4], scores[..., None], found[..., 4:]], axis=-1)
        error = ops.mean(ops.square(outputs.image - inputs), axis=(1, 2, 3))
        flat = (ops.reshape(found, (-1, cells * FIELDS)), ops.reshape(targets[:, :-1], (-1, self._settings.boxes * 5)))
        return ops.concatenate([*flat, error[:, None]], axis=1)

    def measures(self, rows: NDArray[np.float32]) -> Measures:
        """The mean average precision at each overlap, "map@0.1" and "map@0.5", and
        "reconstruction_error"."""
        settings = self._settings
        split = settings.boxes * 5 + 1
        detected = rows[:, :-split].reshape(-1, prod(settings.grid), FIELDS)
        truth = rows[:, -split:-1].reshape(-1, settings.boxes, 5)
        found = mean_precisions(detected, truth, settings.classes, settings.overlaps)
        error = float(np.mean(rows[:, -1], dtype=np.float64)) if len(rows) else 0.0
        return {**found, "reconstruction_error": error}

    def _begin_with_few_events(self) -> None:
        """Draw small kernels for the heads, whose objects begin at the initial share of events.

        Otherwise the many empty cells dominate the loss of the first epochs.
        """
        heads = {name: self.network.get_layer(name) for name in ("class", "object", "xy", "wh")}
        redraw((layer.kernel for layer in heads.values()), self._settings.initial_deviation)
        share = self._settings.initial_share
        heads["object"].bias.assign([log(1.0 - share), log(share)])

    def _outputs(self, inputs: Any, training: bool) -> Outputs:
        *heads, image = (ops.cast(each, "float32") for each in self.network(inputs, training=training))
        cells = prod(self._settings.grid)
        classes, objects, offsets, sizes = (ops.reshape(head, (-1, cells, head.shape[-1])) for head in heads)
        return Outputs(classes, objects, offsets, sizes, image)

    def _of_cells(self, outputs: Outputs, targets: Any) -> Any:
        """The terms of the labels, (N,); 0 for images without labels.

        The object's is a sum over all cells, the others are means over the cells with a box.
        """
        settings = self._settings
        labels = label_cells(targets[:, :-1], settings)
        holds = labels.holds
        objects = cross_entropy(outputs.objects, ops.cast(holds, "int32"))
        objects = ops.sum(objects * ops.where(holds, 1.0, settings.empty_weight), axis=1)
        classes = mean_of(cross_entropy(outputs.classes, labels.classes), holds, holds)
        offsets, sizes = (
            mean_of(ops.sum(smooth_l1(found - wanted, settings.smooth), axis=-1), holds, holds)
            for found, wanted in ((outputs.offsets, labels.offsets), (outputs.sizes, labels.sizes))
        )
        terms = classes + objects + settings.offset_weight * offsets + settings.size_weight * sizes
        # Chosen, not multiplied: an infinite term of an image without labels times 0 is not a
        # number.
        return ops.where(targets[:, -1, 0] > 0.5, terms, 0.0)
