"""The training step and the evaluation step of one rank on PyTorch.

Results are over all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import torch
from numpy.typing import NDArray

from aiperf.wire.messages import TrainRequest
from replica.trainer.collectives.contract import Collective
from replica.trainer.data.portable.recipe import scale_and_shift
from replica.trainer.framework import BlankBatch
from replica.trainer.frameworks.torch.descent import descend
from replica.trainer.frameworks.torch.memory import little_memory
from replica.trainer.frameworks.torch.network import Network, network_of
from replica.trainer.model import objectives
from replica.trainer.model.state import KerasState
from replica.trainer.updates import UPDATES, choose_update
from workloads.contract import Workload


class TorchSteps(KerasState):
    """Steps by PyTorch's autograd, for batches of any size (`CompiledSteps`)."""

    def __init__(
        self, model: Any, optimiser: Any, workload: Workload, collective: Collective, request: TrainRequest
    ) -> None:
        super().__init__(model, optimiser, collective)
        self._network = network_of(model)
        self._parameters = self._network.parameters
        find = objectives.find_of_logits if self._network.gives_logits else objectives.find
        self._loss = find(workload.training_loss(request))
        self._scores = [find(each) for each in (workload.validation_loss(request), *workload.metrics)]
        self._trained = list(model.trainable_variables)
        self._device = self._trained[0].value.device
        self._rows: dict[int, tuple[Any, Any]] = {}
        """Factors and offsets of a row of pixels, by its width."""
        self._descent = descend(optimiser, self._trained, self._parameters)
        self._update = UPDATES.load(choose_update(collective.size))(self._descent, collective)

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of the training steps that follow."""
        self._descent.set_rate(rate)

    def prepare(self, blank: BlankBatch, sizes: Sequence[int]) -> None:
        """Let libraries choose their algorithms; a rank does it without the others.

        On an accelerator they choose by the shapes of whole batches, for one convolution at a time:
        another training may have the rest of the memory.
        """
        if self._device.type != "cpu" and isinstance(self._network, Network):
            with little_memory(self._device):
                for size in {size for size in sizes if size}:
                    self._network.try_convolutions(size)
        before = self.state()
        images, labels = blank(1)
        self._own_gradients(self._tensor(images), self._tensor(labels), self._scale())
        self._own_scores(images, labels)
        self.restore(before)

    def _tensor(self, values: Any) -> Any:
        """Values on the device as float32; pixels are moved as bytes and normalised there."""
        own = values if isinstance(values, torch.Tensor) else torch.as_tensor(np.asarray(values))
        if self._device.type == "cuda" and own.device.type == "cpu":
            # A copy from memory that is not pinned waits for all steps that are under way.
            own = own.pin_memory()
        if own.dtype != torch.uint8:
            return own.to(self._device, torch.float32, non_blocking=True)
        count, height, width, channels = own.shape
        scale, shift = self._row_of(width)
        rows = own.to(self._device, non_blocking=True).reshape(count, height, width * channels)
        return rows.to(torch.float32).mul_(scale).sub_(shift).reshape(own.shape)

    def _row_of(self, width: int) -> tuple[Any, Any]:
        # Made once: copying them in each step would wait for what is under way.
        if width not in self._rows:
            self._rows[width] = tuple(torch.as_tensor(each, device=self._device) for each in scale_and_shift(width))
        return self._rows[width]

    def train(self, images: Any, labels: Any) -> Any:
        """Do one update; give the sum of the losses, the images, and the norm of the gradient."""
        scale = self._scale()
        if len(images):
            sums, gradients = self._own_gradients(self._tensor(images), self._tensor(labels), scale)
        else:
            sums = torch.zeros(2, device=self._device)
            gradients = self._parameters.zeros(self._trained)
        with torch.no_grad():
            totals, applied = self._update.apply(gradients, self._trained, sums)
            # One kernel for all norms, then one for the norm of these: hundreds of small ones would
            # be slower.
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(applied))))
        return torch.cat([totals, (norm if scale is None or self._descent.unscales else norm / scale)[None]])

    def _scale(self) -> Any:
        """The scale of the loss, on the device; None if the optimiser has none."""
        scaled = isinstance(self._optimiser, keras.optimizers.LossScaleOptimizer)
        return self._optimiser.scale_loss(torch.ones((), device=self._device)) if scaled else None

    def _own_gradients(self, images: Any, labels: Any, scale: Any) -> tuple[Any, list[Any]]:
        """Compute this rank's sums, and the gradients of its mean loss times the scale."""
        losses = self._loss(labels, self._network(images, training=True))
        loss = losses.mean() if scale is None else losses.mean() * scale
        found = torch.autograd.grad(loss, self._parameters.leaves(self._trained))
        sums = torch.stack([losses.detach().sum(), self._count(images)])
        return sums, self._parameters.gradients(found, self._trained)

    def _count(self, images: Any) -> Any:
        # Filled on the device: copying the number there would wait for what is under way.
        return torch.full((), float(len(images)), device=self._device)

    def evaluate(self, images: Any, labels: Any) -> Any:
        """Evaluate; give sums over all ranks: loss, metrics, images."""
        return self._collective.sum_tensors([self._own_scores(images, labels)], "scores")[0]

    def _own_scores(self, images: Any, labels: Any) -> Any:
        """Evaluate this rank's images; give the sums of loss and metrics, and their number."""
        if not len(images):
            return torch.zeros(len(self._scores) + 1, device=self._device)
        with torch.no_grad():
            outputs = self._network(self._tensor(images), training=False)
            truth = self._tensor(labels)
            sums = [score(truth, outputs).float().sum() for score in self._scores]
        return torch.stack([*sums, self._count(images)])

    def read(self, results: Sequence[Any]) -> NDArray[np.float32]:
        """Wait for the steps that gave these results; give a row for each of them."""
        rows: NDArray[np.float32] = torch.stack(list(results)).cpu().numpy()
        return rows
