"""Average precision of detections, on the host.

Everingham et al. 2010, section 4.2, with the area under the curve since VOC 2010: detections of all
images by score; one is right if its best box of that class in the image overlaps it enough and was
not taken before; the area is that under the monotone envelope of precision over recall.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FIELDS = 6
"""Count of the numbers of a detection: box, score, class. Unused places have score 0."""


@dataclass(frozen=True, slots=True)
class Found:
    """Detections and true boxes of one image and one class."""

    boxes: Array
    """Boxes of the detections, (D, 4)."""
    scores: Array
    """Scores of the detections, (D,), falling."""
    truth: Array
    """True boxes, (B, 4)."""


def overlaps(some: Array, others: Array) -> Array:
    """The intersection over union of boxes (A, 4) and (B, 4): (A, B)."""
    upper = np.maximum(some[:, None, :2], others[None, :, :2])
    lower = np.minimum(some[:, None, 2:], others[None, :, 2:])
    shared = np.prod(np.maximum(lower - upper, 0.0), axis=-1)
    areas = [np.prod(boxes[:, 2:] - boxes[:, :2], axis=-1) for boxes in (some, others)]
    union = areas[0][:, None] + areas[1][None, :] - shared
    found: Array = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return found


def right_ones(found: Found, least: float) -> NDArray[np.bool_]:
    """Flags of the detections that are right at an overlap of at least `least`: (D,)."""
    right = np.zeros(len(found.boxes), bool)
    if not len(found.truth) or not len(found.boxes):
        return right
    shared = overlaps(found.boxes, found.truth)
    best = shared.argmax(axis=1)
    enough = shared[np.arange(len(best)), best] >= least
    # The first of the detections of each box, from the best score on, takes it.
    _, first = np.unique(best[enough], return_index=True)
    right[np.flatnonzero(enough)[first]] = True
    return right


def average_precision(scores: Array, right: NDArray[np.bool_], boxes: int) -> float:
    """The area under the envelope of precision over recall, of detections (M,) and true boxes.

    Detections of one score enter the curve together, so that their order does not matter.
    """
    if not len(scores):
        return 0.0
    order = np.argsort(-scores, kind="stable")
    # The last detection of each score: the curve has a point there, and none within a tie.
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    hits = np.cumsum(right[order])[ends]
    precision = hits / (ends + 1)
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(np.diff(hits, prepend=0) * envelope) / boxes)


def mean_average_precision(by_class: list[list[Found]], least: float) -> float:
    """The mean over the classes that have true boxes, each a list of images; 0 if none has."""
    found = []
    for images in by_class:
        boxes = sum(len(image.truth) for image in images)
        if boxes:
            scores = np.concatenate([image.scores for image in images])
            right = np.concatenate([right_ones(image, least) for image in images])
            found.append(average_precision(scores, right, boxes))
    return float(np.mean(found)) if found else 0.0


def mean_precisions(
    detected: NDArray[np.float32], truth: NDArray[np.float32], classes: int, levels: Sequence[float]
) -> dict[str, float]:
    """The mean average precision at each level of overlap, by names such as "map@0.5".

    Detections are (M, D, 6), by falling score; true boxes with their classes are (M, B, 5), of
    which unused ones have a negative class.
    """
    exact = detected.astype(np.float64), truth.astype(np.float64)
    by_class = [_of_class(*exact, number) for number in range(classes)]
    return {f"map@{least:g}": mean_average_precision(by_class, least) for least in levels}


def _of_class(detected: Array, truth: Array, number: int) -> list[Found]:
    """The detections and true boxes of one class, image by image."""
    used = (detected[..., 4] > 0) & (detected[..., 5] == number)
    present = truth[..., 4] == number
    return [
        Found(found[mine, :4], found[mine, 4], boxes[there, :4])
        for found, mine, boxes, there in zip(detected, used, truth, present, strict=True)
    ]
