"""The update by the mean gradient over the images of all ranks: one all-reduce a step."""

from collections.abc import Sequence
from typing import Any

from replica.trainer.collectives.contract import Collective


class SynchronousUpdate:
    """Synchronous data parallelism (Goyal et al. 2017).

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
