"""The update of one rank by its own gradients."""

from collections.abc import Sequence
from typing import Any

from replica.trainer.collectives.contract import Collective


class LocalUpdate:
    """The update of a rank that trains alone."""

    compilable = True
    traceable = True

    def __init__(self, optimiser: Any, collective: Collective) -> None:
        self._optimiser = optimiser

    def apply(self, gradients: Sequence[Any], variables: Sequence[Any], sums: Any) -> tuple[Any, Sequence[Any]]:
        """Apply the gradients as they are."""
        self._optimiser.apply(gradients, variables)
        return sums, gradients
