"""Detection as a task: both stages of Faster R-CNN trained together.

The parts come in the order of a step: anchors, detections, matches with true boxes, proposals,
features of regions, and the task that joins them. All shapes are fixed, so that a step is compiled
once: unused places are flagged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from keras import ops
from numpy.typing import NDArray

from replica.trainer.model.builder import build_model, check_model
from replica.trainer.model.container import Networks, redraw
from replica.trainer.model.objectives import cross_entropy_of_logits, logits_of
from replica.trainer.model.roi_align import Grid, align
from replica.trainer.tasks.contract import Measures, Part
from replica.trainer.tasks.detection.boxes import (
    area,
    clip,
    cross_entropy,
    decode,
    encode,
    mean_of,
    overlap,
    packed,
    random_order,
    rows_of,
    sample,
    shift_loss,
    survivors,
)
from replica.trainer.tasks.detection.precision import FIELDS, mean_precisions
from workloads.networks import faster_rcnn_body, faster_rcnn_head
from workloads.settings.detection import DetectionSettings, Sampling

# Anchors: the boxes from which proposals are shifted.


def anchors_of(settings: DetectionSettings) -> NDArray[np.float32]:
    """Make all anchors, (A, 4), by level, row, column and ratio.

    Ren et al. 2015, section 3.3: those of a cell have one centre, that of the cell, and one area.
    """
    height, width = settings.image
    levels = [
        _of_level(height // stride, width // stride, stride, shapes_of(size, settings.ratios))
        for stride, size in zip(settings.strides, settings.anchor_sizes, strict=True)
    ]
    return np.concatenate(levels).astype(np.float32)


def shapes_of(size: float, ratios: tuple[float, ...]) -> NDArray[np.float64]:
    """Height and width of the anchors of area size x size, by height over width: (ratios, 2)."""
    root = np.sqrt(np.asarray(ratios))
    return np.stack([size * root, size / root], axis=-1)


def _of_level(rows: int, columns: int, stride: int, shapes: NDArray[np.float64]) -> NDArray[np.float64]:
    places = np.stack(np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"), axis=-1)
    centres = (places[:, :, None] + 0.5) * stride
    return np.concatenate([centres - shapes / 2, centres + shapes / 2], axis=-1).reshape(-1, 4)


# Detections of an evaluation: the best boxes of each class, in fixed shape.


def detect(logits: Any, shifts: Any, regions: tuple[Any, Any], settings: DetectionSettings) -> Any:
    """The best detections of each image, (N, D, 6), by falling score.

    They come from logits (N, R, classes + 1), the last for background, shifts (N, R, classes, 4),
    and regions: boxes (N, R, 4) and flags of the real ones (N, R).
    """
    boxes, real = regions
    scores = ops.softmax(logits, axis=-1)[..., :-1]
    scores = ops.where(real[..., None], scores, 0.0)
    found = decode(shifts, boxes[:, :, None, :], settings.region_scales, settings.largest_growth)
    kept = [
        _of_class(clip(found[:, :, number], settings.image), scores[..., number], number, settings)
        for number in range(settings.classes)
    ]
    every = ops.concatenate(kept, axis=1)
    best = ops.top_k(every[..., 4], settings.detections)[1]
    return rows_of(every, ops.cast(best, "int32"))


def _of_class(boxes: Any, scores: Any, number: int, settings: DetectionSettings) -> Any:
    """The detections of one class after suppression, (N, R, 6), from boxes (N, R, 4) and scores."""
    ordered, places = ops.top_k(scores, scores.shape[1])
    boxes = rows_of(boxes, ops.cast(places, "int32"))
    stay = survivors(boxes, ordered > settings.least_score, settings.detection_overlap)
    ordered = ops.where(stay, ordered, 0.0)[..., None]
    return ops.concatenate([boxes, ordered, ops.full_like(ordered, float(number))], axis=-1)


# True boxes of images, and the anchors or regions that belong to them.


@dataclass(frozen=True, slots=True)
class Truth:
    """The true boxes of each image, and the draw that decides what is sampled."""

    boxes: Any
    """Boxes, (N, B, 4) float32."""
    classes: Any
    """Classes, (N, B) int32."""
    valid: Any
    """Flags of the rows that hold a box, (N, B)."""
    draws: Any
    """Draws, (N,) float32 in [0, 1)."""


@dataclass(frozen=True, slots=True)
class Matches:
    """The matches of candidates with true boxes, (N, A) each."""

    box: Any
    """Index of the true box that a candidate overlaps most, int32."""
    positive: Any
    negative: Any


def truth_of(targets: Any) -> Truth:
    """Read targets (N, B + 1, 5): rows ymin, xmin, ymax, xmax, class, and the row of the draw.

    Rows whose class is negative are unused.
    """
    rows = targets[:, :-1]
    valid = rows[..., 4] >= 0.0
    boxes = ops.where(valid[..., None], rows[..., :4], 0.0)
    draws = targets[:, -1, 0]
    return Truth(boxes, ops.cast(ops.maximum(rows[..., 4], 0.0), "int32"), valid, draws - ops.floor(draws))


def match(candidates: Any, truth: Truth, wanted: Sampling) -> Matches:
    """Match boxes (A, 4) or (N, A, 4) with the true boxes of each image.

    Ren et al. 2015, section 3.1.2. Unused rows overlap nothing.
    """
    shared = ops.where(truth.valid[:, None, :], overlap(candidates, truth.boxes), 0.0)
    best = ops.max(shared, axis=2)
    positive = best >= wanted.positive_overlap
    if wanted.best_of_box:
        of_box = ops.max(shared, axis=1, keepdims=True)
        is_best = ops.logical_and(shared >= of_box, shared > 0.0)
        positive = ops.logical_or(positive, ops.any(is_best, axis=2))
    negative = ops.logical_and(best < wanted.negative_overlap, ops.logical_not(positive))
    return Matches(ops.cast(ops.argmax(shared, axis=2), "int32"), positive, negative)


# Proposals: the regions that the first stage finds.


def propose(scores: Any, shifts: Any, anchors: Any, settings: DetectionSettings) -> tuple[Any, Any]:
    """The best proposals after suppression: boxes (N, P, 4), and flags of the real ones, (N, P).

    They come from scores (N, A), shifts (N, A, 4) and anchors (A, 4). Real ones come first, from
    best to worst; an empty box is not real. No gradient flows through them (Ren et al. 2015,
    section 3.2).
    """
    scores, shifts = ops.stop_gradient(scores), ops.stop_gradient(shifts)
    _, best = ops.top_k(scores, settings.proposals_before)
    best = ops.cast(best, "int32")
    references = ops.take(anchors, best, axis=0)
    boxes = decode(rows_of(shifts, best), references, settings.anchor_scales, settings.largest_growth)
    boxes = clip(boxes, settings.image)
    stay = survivors(boxes, area(boxes) > 0.0, settings.proposal_overlap)
    places = ops.arange(settings.proposals_before, dtype="int32")[None, :]
    first = ops.top_k(ops.where(stay, settings.proposals_before, 0) - places, settings.proposals)[1]
    first = ops.cast(first, "int32")
    return rows_of(boxes, first), rows_of(stay, first)


# Features of regions, cut from the level of the pyramid that suits their size.


def level_of(boxes: Any, settings: DetectionSettings) -> Any:
    """The level, 0 the finest, of boxes (N, R, 4): (N, R) int32.

    Lin et al. 2017, equation 1: one level further with every doubling of the side of the square of
    a box's area, from `region_side` on.
    """
    # Without a logarithm, whose rounding differs between frameworks at the borders.
    borders = [settings.region_side * 2**level for level in range(1, settings.region_levels)]
    return sum(
        (ops.cast(area(boxes) >= border**2, "int32") for border in borders), ops.zeros_like(boxes[..., 0], "int32")
    )


def cut(levels: Sequence[Any], boxes: Any, settings: DetectionSettings) -> Any:
    """Features of boxes (N, R, 4) from levels (N, H, W, C), finest first: (N, R, bins * bins * C).

    He et al. 2017, section 3. Gradients go to the levels alone.
    """
    boxes = ops.stop_gradient(boxes)
    heights, widths, channels = zip(*(level.shape[1:] for level in levels), strict=True)
    sizes = np.multiply(heights, widths)
    own = level_of(boxes, settings)

    def by_level(numbers: Any) -> Any:
        return ops.take(ops.convert_to_tensor(np.asarray(numbers, np.int32)), own, axis=0)

    grid = Grid(by_level(heights), by_level(widths), by_level(np.cumsum(sizes) - sizes))
    strides = ops.cast(by_level(settings.strides[: len(levels)]), "float32")
    cells = [ops.reshape(level, (-1, int(size), channels[0])) for level, size in zip(levels, sizes, strict=True)]
    found = align(ops.concatenate(cells, axis=1), boxes / strides[..., None], grid, settings.bins, settings.samples)
    return ops.reshape(found, (-1, boxes.shape[1], settings.bins**2 * channels[0]))


LAST_LAYERS = ("object2", "delta2", "box", "class")
ANCHORS, REGIONS = 0, 1
"""Streams of random numbers of the two stages."""


@dataclass(frozen=True, slots=True)
class FirstStage:
    """The outputs of body and pyramid for a batch."""

    levels: list[Any]
    """Levels from which regions are cut, (N, H, W, C) each."""
    scores: Any
    """Logits of the anchors' objectness, (N, A)."""
    shifts: Any
    """Shifts of the anchors, (N, A, 4)."""


class Detection:
    """Faster R-CNN (Ren et al. 2015) on a feature pyramid (Lin et al. 2017).

    Inputs are images (N, H, W, C); targets (N, B + 1, 5) hold the true boxes as the data set has
    them, ymin, xmin, ymax, xmax, class, then a row whose first number in [0, 1) decides which
    anchors and regions of the image train. Unused rows have a negative class.
    """

    correct = None

    def __init__(self, settings: DetectionSettings) -> None:
        self._settings = settings
        body, head = faster_rcnn_body(settings), faster_rcnn_head(settings.regions.total, settings)
        networks = {"body": build_model(body), "head": build_model(head)}
        check_model(networks["body"], body)
        check_model(networks["head"], head)
        self.network = Networks(networks)
        layers = [layer for network in networks.values() for layer in network.layers]
        redraw((layer.kernel for layer in layers if layer.name in LAST_LAYERS), settings.initial_deviation)
        self._body, self._head = map(logits_of, networks.values())
        # An evaluation has more regions than a training step, and shapes are fixed: a second model
        # of the same layers, so of the same weights.
        every = faster_rcnn_head(settings.proposals, settings)
        kept = {layer.name: layer for layer in networks["head"].layers[1:]}
        self._head_of_all = logits_of(build_model(every, kept))
        self._anchors = anchors_of(settings)
        self.parts = (Part("detector", self.network.trainable_variables),)
        self.input_shape = (*settings.image, settings.channels)
        self.target_shape = settings.target_shape
        self.columns = settings.detections * FIELDS + settings.boxes * 5

    def losses(self, inputs: Any, targets: Any) -> tuple[Any, ...]:
        """The weighted sum of the four losses of each image, (N,)."""
        truth = truth_of(targets)
        first = self._first_stage(inputs, training=True)
        terms = (*self._proposal_losses(first, truth), *self._region_losses(first, truth))
        return (sum(weight * term for weight, term in zip(self._settings.loss_weights, terms, strict=True)),)

    def rows(self, inputs: Any, targets: Any) -> Any:
        """The rows: detections (box, score, class) and true boxes (box, class) of each image."""
        settings = self._settings
        first = self._first_stage(inputs, training=False)
        regions = propose(first.scores, first.shifts, self._tensor_of_anchors(), settings)
        found = detect(*self._second_stage(self._head_of_all, first, regions[0], training=False), regions, settings)
        flat = ops.reshape(found, (-1, settings.detections * FIELDS))
        return ops.concatenate([flat, ops.reshape(targets[:, :-1], (-1, settings.boxes * 5))], axis=1)

    def measures(self, rows: NDArray[np.float32]) -> Measures:
        """The mean average precision at each overlap, by the names "map@0.5" and "map@0.1"."""
        settings = self._settings
        split = settings.detections * FIELDS
        detected = rows[:, :split].reshape(-1, settings.detections, FIELDS)
        truth = rows[:, split:].reshape(-1, settings.boxes, 5)
        return mean_precisions(detected, truth, settings.classes, settings.overlaps)

    def _tensor_of_anchors(self) -> Any:
        return ops.convert_to_tensor(self._anchors)

    def _first_stage(self, inputs: Any, training: bool) -> FirstStage:
        settings = self._settings
        outputs = self._body(inputs, training=training)
        levels, heads = outputs[: settings.region_levels], outputs[settings.region_levels :]
        scores = [ops.reshape(each, (-1, prod(each.shape[1:]))) for each in heads[::2]]
        shifts = [ops.reshape(each, (-1, prod(each.shape[1:]) // 4, 4)) for each in heads[1::2]]
        joined = (ops.cast(ops.concatenate(each, axis=1), "float32") for each in (scores, shifts))
        return FirstStage(levels, *joined)

    def _second_stage(self, head: Any, first: FirstStage, boxes: Any, training: bool) -> tuple[Any, Any]:
        """The logits of regions' classes (N, R, classes + 1), and shifts (N, R, classes, 4)."""
        shifts, logits = head(cut(first.levels, boxes, self._settings), training=training)
        shifts = ops.reshape(shifts, (-1, boxes.shape[1], self._settings.classes, 4))
        return logits, ops.cast(shifts, "float32")

    def _proposal_losses(self, first: FirstStage, truth: Truth) -> tuple[Any, Any]:
        """The losses of the sampled anchors' objectness and shifts, (N,) each."""
        settings, anchors = self._settings, self._tensor_of_anchors()
        matches = match(anchors, truth, settings.anchors)
        order = random_order(truth.draws, len(self._anchors), ANCHORS)
        chosen = sample(matches.positive, matches.negative, order, settings.anchors)
        logits = rows_of(first.scores, chosen.indices)
        objectness = cross_entropy_of_logits(logits, ops.cast(chosen.positive, "float32"))
        boxes = rows_of(truth.boxes, rows_of(matches.box, chosen.indices))
        wanted = encode(boxes, ops.take(anchors, chosen.indices, axis=0), settings.anchor_scales)
        shifts = shift_loss(rows_of(first.shifts, chosen.indices), wanted, settings.smooth)
        return (
            mean_of(objectness, chosen.used, chosen.used),
            mean_of(shifts, chosen.positive, chosen.used),
        )

    def _region_losses(self, first: FirstStage, truth: Truth) -> tuple[Any, Any]:
        """The losses of the sampled regions' classes and shifts, (N,) each.

        True boxes join the proposals: early proposals may overlap no event at all.
        """
        settings = self._settings
        boxes, real = propose(first.scores, first.shifts, self._tensor_of_anchors(), settings)
        boxes = ops.concatenate([boxes, truth.boxes], axis=1)
        real = ops.concatenate([real, truth.valid], axis=1)
        matches = match(boxes, truth, settings.regions)
        order = random_order(truth.draws, boxes.shape[1], REGIONS)
        positive, negative = (ops.logical_and(each, real) for each in (matches.positive, matches.negative))
        chosen = packed(sample(positive, negative, order, settings.regions), settings.regions.total)
        regions, box = rows_of(boxes, chosen.indices), rows_of(matches.box, chosen.indices)
        logits, shifts = self._second_stage(self._head, first, regions, training=True)
        labels = ops.where(chosen.positive, rows_of(truth.classes, box), settings.classes)
        classes = cross_entropy(logits, labels)
        wanted = encode(rows_of(truth.boxes, box), regions, settings.region_scales)
        number = ops.minimum(labels, settings.classes - 1)[..., None, None]
        own = ops.take_along_axis(shifts, number, axis=2)[:, :, 0]
        return (
            mean_of(classes, chosen.used, chosen.used),
            mean_of(shift_loss(own, wanted, settings.smooth), chosen.positive, chosen.used),
        )
