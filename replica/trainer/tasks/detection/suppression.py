"""Greedy suppression of boxes that overlap better ones, exactly, as a fixed point."""

from __future__ import annotations

from typing import Any

from keras import ops

from replica.trainer.tasks.detection.boxes import overlap


def survivors(boxes: Any, valid: Any, most: float) -> Any:
    """Flags of the boxes that stay, (..., K), among boxes (..., K, 4) from best to worst.

    A box stays if it is valid and overlaps no better box that stays by more than `most`. With all
    boxes staying at first, a round of this rule settles at least one more box, from the best on;
    when a round changes nothing, the rule holds for all, and only the greedy choice fulfils it.
    """
    places = ops.arange(boxes.shape[-2], dtype="int32")
    better = places[None, :] < places[:, None]
    rivals = ops.cast(ops.logical_and(overlap(boxes, boxes) > most, better), "float32")

    def rule(stay: Any) -> Any:
        beaten = ops.squeeze(ops.matmul(rivals, ops.cast(stay, "float32")[..., None]), axis=-1)
        return ops.logical_and(valid, beaten < 0.5)

    def changed(before: Any, now: Any) -> Any:
        return ops.any(ops.not_equal(before, now))

    _, stay = ops.while_loop(changed, lambda before, now: (now, rule(now)), (valid, rule(valid)))
    return stay
