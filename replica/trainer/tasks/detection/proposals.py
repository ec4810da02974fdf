"""Proposals: the regions that the first stage finds."""

from __future__ import annotations

from typing import Any

from keras import ops

from replica.trainer.tasks.detection.boxes import area, clip, decode, rows_of
from replica.trainer.tasks.detection.suppression import survivors
from workloads.settings.detection import DetectionSettings


def propose(scores: Any, shifts: Any, anchors: Any, settings: DetectionSettings) -> tuple[Any, Any]:
    """The best proposals after suppression: boxes (N, P, 4), and which are real, (N, P).

    From scores (N, A), shifts (N, A, 4) and anchors (A, 4). Real ones come first, from best to
    worst; an empty box is not real. No gradient flows through them (Ren et al. 2015, section 3.2).
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
