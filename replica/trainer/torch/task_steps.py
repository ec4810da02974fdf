"""The steps of a scientific task on PyTorch, through Keras' own layers."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch

from aiperf.messages import TrainRequest
from replica.trainer.collectives.contract import Collective
from replica.trainer.model.state import KerasState
from replica.trainer.tasks.classification import SignalClassification
from replica.trainer.tasks.contract import Task, trained_variables
from replica.trainer.tasks.rows import KeptRows
from replica.trainer.torch.network import Network
from replica.trainer.torch.steps import TorchSteps
from replica.trainer.updates import UPDATES, choose_update


class TorchTaskSteps(TorchSteps):
    """Steps by PyTorch's autograd (`TaskSteps`)."""

    def __init__(self, task: Task, optimiser: Any, collective: Collective, request: TrainRequest) -> None:
        KerasState.__init__(self, task.network, optimiser, collective)
        self._task = task
        self._trained = trained_variables(task)
        self._kept = KeptRows(task.columns)
        self.take_rows = self._kept.take
        self._device = self._trained[0].value.device
        self._update = UPDATES.load(choose_update(collective.size))(optimiser, collective)
        if isinstance(task, SignalClassification):
            _compute_natively(task, optimiser)

    def _own_gradients(self, images: Any, labels: Any, scale: Any) -> tuple[Any, list[Any]]:
        """Sums of this rank, and gradients of each part's mean loss times the scale."""
        losses, parts = self._task.losses(images, labels), self._task.parts
        gradients: list[Any] = []
        for number, (loss, part) in enumerate(zip(losses, parts, strict=True), start=1):
            values = [variable.value for variable in part.variables]
            again = number < len(parts)
            found = torch.autograd.grad(loss.mean() * scale, values, retain_graph=again, allow_unused=True)
            gradients += [_zeros_if_unused(own, value) for own, value in zip(found, values, strict=True)]
        count = torch.tensor(float(len(images)), device=self._device)
        return torch.stack([_total(losses), count]), gradients

    def evaluate(self, images: Any, labels: Any) -> Any:
        """Keep the rows of the examples; the number of examples over all ranks."""
        if len(images):
            with torch.no_grad():
                self._kept.keep(self._task.rows(self._tensor(images), self._tensor(labels)).float().cpu().numpy())
        own = torch.tensor([0.0, float(len(images))], device=self._device)
        return self._collective.sum_tensors([own], "examples")[0]


def _compute_natively(task: SignalClassification, optimiser: Any) -> None:
    """Compute the network in PyTorch's own operations if they cover all of its layers."""
    with contextlib.suppress(KeyError):
        network = Network(task.network)
        if network.gives_logits:
            network.lay_out(optimiser.variables)
            task.forward = network


def _zeros_if_unused(gradient: Any, value: Any) -> Any:
    return torch.zeros_like(value) if gradient is None else gradient


def _total(losses: Sequence[Any]) -> Any:
    return sum(loss.detach().float().sum() for loss in losses)
