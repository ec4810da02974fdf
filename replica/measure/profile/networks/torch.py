"""The training step of a network on random data, on PyTorch."""

from collections.abc import Sequence
from typing import Any

import torch

from replica.measure.profile.networks.batches import mean_square
from replica.trainer.collectives.contract import Collective
from replica.trainer.model.state import KerasState


class TorchNetworkSteps(KerasState):
    """Steps by Keras's own layers under PyTorch's autograd (`NetworkSteps`)."""

    def __init__(self, model: Any, optimiser: Any, collective: Collective, batch_size: int, xla: bool) -> None:
        super().__init__(model, optimiser, collective)

    def train(self, images: Any) -> Any:
        """Do one update; give the loss before it."""
        variables = self._model.trainable_variables
        loss = mean_square(self._model(images, training=True))
        values = [variable.value for variable in variables]
        gradients = torch.autograd.grad(self._optimiser.scale_loss(loss), values)
        with torch.no_grad():
            self._optimiser.apply(list(gradients), variables)
        return loss.detach()

    def evaluate(self, images: Any) -> Any:
        """Compute the loss of the model as it stands."""
        with torch.no_grad():
            return mean_square(self._model(images, training=False))

    def read(self, results: Sequence[Any]) -> list[float]:
        """Wait for the steps that gave these results."""
        return [float(each) for each in results]
