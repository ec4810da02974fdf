"""Detections of an evaluation: the best boxes of each class, in fixed shape."""

from __future__ import annotations

from typing import Any

from keras import ops

from replica.trainer.tasks.detection.boxes import clip, decode, rows_of
from replica.trainer.tasks.detection.suppression import survivors
from workloads.settings.detection import DetectionSettings


def detect(logits: Any, shifts: Any, regions: tuple[Any, Any], settings: DetectionSettings) -> Any:
    """The best detections of each image, (N, D, 6), by falling score.

    From logits (N, R, classes + 1), the last for background, shifts (N, R, classes, 4), and
    regions: boxes (N, R, 4) and which are real (N, R).
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
    """Detections of one class after suppression, (N, R, 6), from boxes (N, R, 4) and scores."""
    ordered, places = ops.top_k(scores, scores.shape[1])
    boxes = rows_of(boxes, ops.cast(places, "int32"))
    stay = survivors(boxes, ordered > settings.least_score, settings.detection_overlap)
    ordered = ops.where(stay, ordered, 0.0)[..., None]
    return ops.concatenate([boxes, ordered, ops.full_like(ordered, float(number))], axis=-1)
