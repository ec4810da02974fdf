"""Binary cross-entropy from logits, on any framework."""

from __future__ import annotations

from typing import Any

from keras import ops


def cross_entropy_of_logits(logits: Any, labels: Any) -> Any:
    """-log of the probability of the label, element by element: labels from 0 to 1."""
    return ops.maximum(logits, 0.0) - logits * labels + ops.log1p(ops.exp(-ops.abs(logits)))
