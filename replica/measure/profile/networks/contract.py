"""The contract of a training step on random data.

The loss is the mean square of all outputs: what a step costs does not depend on its values, and
random inputs have no labels.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from replica.trainer.collectives.contract import Collective


class NetworkSteps(Protocol):
    """Steps of one model, compiled for whole batches (N, ...) float32."""

    def __init__(self, model: Any, optimiser: Any, collective: Collective, batch_size: int, xla: bool) -> None: ...

    def train(self, images: Any) -> Any:
        """Do one update; give the loss before it, on the device."""

    def evaluate(self, images: Any) -> Any:
        """Compute the loss of the model as it stands, on the device."""

    def read(self, results: Sequence[Any]) -> list[float]:
        """Wait for the steps that gave these results."""

    def state(self) -> list[NDArray[Any]]:
        """Copies of all variables of model and optimiser."""
