"""Detection as a task: both stages of Faster R-CNN trained together."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from keras import ops
from numpy.typing import NDArray

from replica.trainer.model.builder import build_model, check_model
from replica.trainer.model.container import Networks, redraw
from replica.trainer.model.objectives import logits_of
from replica.trainer.tasks.binary import cross_entropy_of_logits
from replica.trainer.tasks.contract import Measures, Part
from replica.trainer.tasks.detection import losses
from replica.trainer.tasks.detection.anchors import anchors_of
from replica.trainer.tasks.detection.boxes import encode, rows_of
from replica.trainer.tasks.detection.detect import detect
from replica.trainer.tasks.detection.matching import Truth, match, truth_of
from replica.trainer.tasks.detection.precision import FIELDS, mean_precisions
from replica.trainer.tasks.detection.proposals import propose
from replica.trainer.tasks.detection.regions import cut
from replica.trainer.tasks.detection.sampling import packed, random_order, sample
from workloads.networks.climate import faster_rcnn_body, faster_rcnn_head
from workloads.settings.detection import DetectionSettings

LAST_LAYERS = ("object2", "delta2", "box", "class")
ANCHORS, REGIONS = 0, 1
"""Streams of random numbers."""


@dataclass(frozen=True, slots=True)
class FirstStage:
    """What body and pyramid give for a batch."""

    levels: list[Any]
    """(N, H, W, C) each, from which regions are cut."""
    scores: Any
    """Logits of the anchors' objectness, (N, A)."""
    shifts: Any
    """(N, A, 4)."""


class Detection:
    """Faster R-CNN (Ren et al. 2015) on a feature pyramid (Lin et al. 2017).

    Inputs are images (N, H, W, C); targets (N, B + 1, 5) hold the true boxes as the data set has
    them, ymin, xmin, ymax, xmax, class, then a row whose first number in [0, 1) decides which
    anchors and regions of the image train. Unused rows have a negative class.
    """

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
        """Detections (box, score, class) and true boxes (box, class) of each image."""
        settings = self._settings
        first = self._first_stage(inputs, training=False)
        regions = propose(first.scores, first.shifts, self._tensor_of_anchors(), settings)
        found = detect(*self._second_stage(self._head_of_all, first, regions[0], training=False), regions, settings)
        flat = ops.reshape(found, (-1, settings.detections * FIELDS))
        return ops.concatenate([flat, ops.reshape(targets[:, :-1], (-1, settings.boxes * 5))], axis=1)

    def measures(self, rows: NDArray[np.float32]) -> Measures:
        """Mean average precision at each overlap, by the names "map@0.5" and "map@0.1"."""
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
        """Logits of the classes (N, R, classes + 1), and shifts (N, R, classes, 4), of regions."""
        shifts, logits = head(cut(first.levels, boxes, self._settings), training=training)
        shifts = ops.reshape(shifts, (-1, boxes.shape[1], self._settings.classes, 4))
        return logits, ops.cast(shifts, "float32")

    def _proposal_losses(self, first: FirstStage, truth: Truth) -> tuple[Any, Any]:
        """Objectness and shifts of the sampled anchors, (N,) each."""
        settings, anchors = self._settings, self._tensor_of_anchors()
        matches = match(anchors, truth, settings.anchors)
        order = random_order(truth.draws, len(self._anchors), ANCHORS)
        chosen = sample(matches.positive, matches.negative, order, settings.anchors)
        logits = rows_of(first.scores, chosen.indices)
        objectness = cross_entropy_of_logits(logits, ops.cast(chosen.positive, "float32"))
        boxes = rows_of(truth.boxes, rows_of(matches.box, chosen.indices))
        wanted = encode(boxes, ops.take(anchors, chosen.indices, axis=0), settings.anchor_scales)
        shifts = losses.shift_loss(rows_of(first.shifts, chosen.indices), wanted, settings.smooth)
        return (
            losses.mean_of(objectness, chosen.used, chosen.used),
            losses.mean_of(shifts, chosen.positive, chosen.used),
        )

    def _region_losses(self, first: FirstStage, truth: Truth) -> tuple[Any, Any]:
        """Classes and shifts of the sampled regions, (N,) each; true boxes join the proposals."""
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
        classes = losses.cross_entropy(logits, labels)
        wanted = encode(rows_of(truth.boxes, box), regions, settings.region_scales)
        number = ops.minimum(labels, settings.classes - 1)[..., None, None]
        own = ops.take_along_axis(shifts, number, axis=2)[:, :, 0]
        return (
            losses.mean_of(classes, chosen.used, chosen.used),
            losses.mean_of(losses.shift_loss(own, wanted, settings.smooth), chosen.positive, chosen.used),
        )
