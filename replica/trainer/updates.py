"""Updates, which apply the gradients of a training step.

They use only the arithmetic operators of tensors, the collective and the Keras optimiser, so
that one implementation serves every framework. With parameter servers it is that of
`replica.trainer.hybrid.update`.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from aiperf.wire.messages import TrainRequest
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


class LocalUpdate:
    """The update of a rank that trains alone, by its own gradients."""

    compilable = True
    traceable = True

    def __init__(self, optimiser: Any, collective: Collective) -> None:
        self._optimiser = optimiser

    def apply(self, gradients: Sequence[Any], variables: Sequence[Any], sums: Any) -> tuple[Any, Sequence[Any]]:
        """Apply the gradients as they are."""
        self._optimiser.apply(gradients, variables)
        return sums, gradients


class SynchronousUpdate:
    """Synchronous data parallelism (Goyal et al. 2017): one all-reduce a step.

    Each rank's mean gradient weighs as much as its images: the result is that of one rank with all
    images. Batch normalisation sees the images of its own rank only.
    """

    compilable = False
    traceable = True

    def __init__(self, optimiser: Any, collective: Collective) -> None:
        self._optimiser = optimiser
        self._collective = collective

    def apply(self, gradients: Sequence[Any], variables: Sequence[Any], sums: Any) -> tuple[Any, Sequence[Any]]:
        """Average the gradients over the images of all ranks and apply them."""
        totals, means = self._collective.average_gradients(gradients, sums)
        self._optimiser.apply(means, variables)
        return totals, means


def update_for(optimiser: Any, collective: Collective, request: TrainRequest, original: Any = None) -> Update:
    """Make the update of a training; `original` is Keras's optimiser if `optimiser` wraps it."""
    if request.hybrid is None:
        return (LocalUpdate if collective.size == 1 else SynchronousUpdate)(optimiser, collective)
    from replica.trainer.hybrid.update import HybridUpdate  # noqa: PLC0415

    # Servers apply gradients in the place of the wrapper: the original has clipping and scaling.
    return HybridUpdate(optimiser if original is None else original, collective)
