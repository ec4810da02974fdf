"""The steps of a scientific task on PyTorch, through Keras' own layers but for classifiers."""

from collections.abc import Sequence
from typing import Any

import torch

from aiperf.wire.messages import WorkloadRequest
from replica.trainer.collectives.contract import Collective
from replica.trainer.frameworks.torch.descent import descend
from replica.trainer.frameworks.torch.network import Network, network_of
from replica.trainer.frameworks.torch.parameters import Parameters
from replica.trainer.frameworks.torch.steps import TorchSteps
from replica.trainer.frameworks.torch.transfer import Transfer
from replica.trainer.model.state import KerasState
from replica.trainer.tasks.classification import SignalClassification
from replica.trainer.tasks.contract import Task, trained_variables
from replica.trainer.tasks.rows import KeptRows
from replica.trainer.updates import update_for


class TorchTaskSteps(TorchSteps):
    """Steps by PyTorch's autograd (`TaskSteps`)."""

    def __init__(self, task: Task, optimiser: Any, collective: Collective, request: WorkloadRequest) -> None:
        KerasState.__init__(self, task.network, optimiser, collective, task.correct)
        self._task = task
        self._trained = trained_variables(task)
        self._kept = KeptRows(task.columns)
        self.take_rows = self._kept.take
        self._device = self._trained[0].value.device
        self._rows = {}
        self._network = _network(task)
        self._parameters = self._network.parameters if self._network is not None else Parameters()
        self._descent = descend(optimiser, self._trained, self._parameters)
        self._update = update_for(self._descent, collective, request, optimiser)
        self._transfer = Transfer(self._device)
        self._do = self._step_by(request)

    def _own_gradients(self, images: Any, labels: Any, scale: Any) -> tuple[Any, list[Any]]:
        """Compute this rank's sums, and the gradients of each part's mean loss times the scale."""
        losses, parts = self._task.losses(images, labels), self._task.parts
        gradients: list[Any] = []
        for number, (loss, part) in enumerate(zip(losses, parts, strict=True), start=1):
            leaves = self._parameters.leaves(part.variables)
            mean = loss.mean() if scale is None else loss.mean() * scale
            # The losses of a generative pair share a graph: only the last part may free it.
            found = torch.autograd.grad(mean, leaves, retain_graph=number < len(parts), allow_unused=True)
            used = [_zeros_if_unused(own, leaf) for own, leaf in zip(found, leaves, strict=True)]
            gradients += self._parameters.gradients(used, part.variables)
        return torch.stack([_total(losses), self._count(images)]), gradients

    def _own_scores(self, images: Any, labels: Any) -> Any:
        """Keep the rows of the examples; give 0 for the loss, and their number."""
        if len(images):
            with torch.no_grad():
                self._kept.keep(self._task.rows(images, labels).float().cpu().numpy())
        return torch.stack([self._count([]), self._count(images)])


def _network(task: Task) -> Network | None:
    """Let PyTorch's own operations compute a classifier if they cover all of its layers."""
    if isinstance(task, SignalClassification):
        network = network_of(task.network)
        if isinstance(network, Network) and network.gives_logits:
            task.forward = network
            return network
    return None


def _zeros_if_unused(gradient: Any, value: Any) -> Any:
    return torch.zeros_like(value) if gradient is None else gradient


def _total(losses: Sequence[Any]) -> Any:
    return sum(loss.detach().float().sum() for loss in losses)
