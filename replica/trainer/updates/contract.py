"""The contract of an update: it applies the gradients of a training step.

Updates use only the arithmetic operators of tensors, the collective and the Keras optimiser, so
that one implementation serves every framework.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from replica.trainer.collectives.contract import Collective


class Update(Protocol):
    """The application of gradients, as a part of the training step."""

    compilable: bool
    """True if XLA can compile it into the step; it cannot compile an all-reduce by a library."""
    traceable: bool
    """True if it can be a part of the framework's graph; otherwise it runs after the gradients'
    graph, on tensors that have values."""

    def __init__(self, optimiser: Any, collective: Collective) -> None:
        """Update with a built Keras optimiser."""

    def apply(self, gradients: Sequence[Any], variables: Sequence[Any], sums: Any) -> tuple[Any, Sequence[Any]]:
        """Update the variables; give the step's sums over all ranks and the gradients applied.

        `gradients` are of the mean loss over this rank's images, `sums` is its (2,) float32 tensor
        of the loss, summed, and the number of images.
        """
