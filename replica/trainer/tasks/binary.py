"""Binary cross-entropy from logits, on any framework."""

from typing import Any

from keras import ops


def cross_entropy_of_logits(logits: Any, labels: Any) -> Any:
    """Minus the logarithm of the label's probability, by element; labels are from 0 to 1.

    The form max(x, 0) - x z + log(1 + exp(-|x|)) overflows for no logit x.
    """
    return ops.maximum(logits, 0.0) - logits * labels + ops.log1p(ops.exp(-ops.abs(logits)))
