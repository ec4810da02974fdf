"""The training step and the evaluation step of one rank on PyTorch.

Results are over all ranks.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import torch
from numpy.typing import NDArray

from aiperf.wire.messages import ArchitectureRequest, TrainRequest
from replica.trainer.collectives.contract import Collective
from replica.trainer.data.portable.recipe import scale_and_shift
from replica.trainer.framework import BlankBatch
from replica.trainer.frameworks.torch.descent import FusedDescent, descend
from replica.trainer.frameworks.torch.memory import little_memory
from replica.trainer.frameworks.torch.network import Network, network_of
from replica.trainer.frameworks.torch.step_graph import Capture, CudaGraph, Graph
from replica.trainer.frameworks.torch.transfer import Transfer
from replica.trainer.model import objectives
from replica.trainer.model.correct import CorrectImages
from replica.trainer.model.state import KerasState
from replica.trainer.updates import update_for
from workloads.contract import Workload

GRAPHS: dict[str, Callable[..., Graph]] = {"cuda": CudaGraph}
"""Graphs by the kind of device that has them; AMD's are "cuda", too."""


def compiles_on(device: Any, request: TrainRequest) -> bool:
    """True if what lies between convolutions is compiled, and steps are captured where they can be.

    On CPUs compiling costs more than it gains in the trainings of a search, unless it is asked for.
    """
    return request.compile == "on" or (request.compile == "auto" and device.type == "cuda")


class TorchSteps(KerasState):
    """Steps by PyTorch's autograd, for batches of any size (`CompiledSteps`)."""

    def __init__(
        self, model: Any, optimiser: Any, workload: Workload, collective: Collective, request: ArchitectureRequest
    ) -> None:
        super().__init__(model, optimiser, collective, CorrectImages())
        network = network_of(model)
        self._forward: Any = network
        self._network = network if isinstance(network, Network) else None
        """The native one; None if Keras's layers compute."""
        self._parameters = network.parameters
        find = objectives.find_of_logits if network.gives_logits else objectives.find
        self._loss = find(workload.training_loss(request))
        self._scores = [find(each) for each in (workload.validation_loss(request), *workload.metrics)]
        self._trained = list(model.trainable_variables)
        self._device = self._trained[0].value.device
        self._rows: dict[int, tuple[Any, Any]] = {}
        """Factors and offsets of a row of pixels, by its width."""
        self._descent = descend(optimiser, self._trained, self._parameters)
        self._update = update_for(self._descent, collective, request, optimiser)
        self._transfer = Transfer(self._device)
        self._do = self._step_by(request)

    def _step_by(self, request: TrainRequest) -> Callable[[Any, Any], Any]:
        """The function of a step: a graph if the device has graphs, and one rank trains alone."""
        own = self._network
        self._compiles = compiles_on(self._device, request)
        if own is None or not self._compiles:
            return self._step
        own.fusion.images = request.batch_size
        make = GRAPHS.get(self._device.type)
        # Keras's optimisers may keep numbers of the host, which a graph would take for constants.
        alone = self._collective.size == 1 and self._update.traceable
        if make is None or not alone or not isinstance(self._descent, FusedDescent):
            return self._step
        return Capture(self._step, own.draws, make, request.batch_size)

    def compiled(self) -> str:
        """Say what of the steps is compiled, and what could not be: "regions, graph"."""
        fusion = self._network.fusion if self._network is not None else None
        if fusion is None or not self._compiles:
            return "no"
        parts = {"regions": fusion.failure}
        if isinstance(self._do, Capture):
            parts["graph"] = self._do.failure
        return ", ".join(name if failure is None else f"no {name} ({failure})" for name, failure in parts.items())

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of the training steps that follow."""
        self._descent.set_rate(rate)

    def prepare(self, blank: BlankBatch, sizes: Sequence[int]) -> None:
        """Let libraries choose their algorithms; a rank does it without the others.

        On an accelerator they choose by the shapes of whole batches, for one convolution at a time:
        another training may have the rest of the memory.
        """
        own = self._network
        if own is not None and (self._device.type != "cpu" or own.fusion.images):
            with little_memory(self._device):
                for size in {size for size in sizes if size}:
                    own.try_steps(size)
        # The blank batch moves statistics and counters, which are put back: a prepared rank trains
        # as one that was not.
        before = self.state()
        images, labels = blank(1)
        with self._transfer(images, labels) as given:
            self._seed()
            self._own_gradients(*self._floats(*given), self._scale())
            self._own_scores(*self._floats(*given))
        self.restore(before)

    def _floats(self, images: Any, labels: Any) -> tuple[Any, Any]:
        """A batch on the device as float32; pixels are normalised there."""
        labels = labels.to(torch.float32)
        if images.dtype != torch.uint8:
            return images.to(torch.float32), labels
        count, height, width, channels = images.shape
        scale, shift = self._row_of(width)
        rows = images.reshape(count, height, width * channels).to(torch.float32)
        return rows.mul_(scale).sub_(shift).reshape(images.shape), labels

    def _row_of(self, width: int) -> tuple[Any, Any]:
        # Made once: copying them in each step would wait for what is under way.
        if width not in self._rows:
            self._rows[width] = tuple(torch.as_tensor(each, device=self._device) for each in scale_and_shift(width))
        return self._rows[width]

    def train(self, images: Any, labels: Any) -> Any:
        """Do one update; give the sum of the losses, the images, and the norm of the gradient."""
        self._seed()
        with self._transfer(images, labels) as given:
            return self._do(*given)

    def _seed(self) -> None:
        if self._network is not None:
            self._network.seed()

    def _step(self, images: Any, labels: Any) -> Any:
        """Do one update with a batch that is on the device."""
        scale = self._scale()
        # A rank that has run out of images still takes part in the sum: the others wait for it.
        if len(images):
            sums, gradients = self._own_gradients(*self._floats(images, labels), scale)
        else:
            sums = torch.zeros(2, device=self._device)
            gradients = self._parameters.zeros(self._trained)
        if not self._update.traceable:
            gradients = self._parameters.originals(gradients, self._trained)
        with torch.no_grad():
            totals, applied = self._update.apply(gradients, self._trained, sums)
            # One kernel for all norms, then one for the norm of these: hundreds of small ones would
            # be slower.
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(applied))))
        # Gradients are those of the scaled loss unless the optimiser has unscaled them in place,
        # and the record has the norm of the true ones.
        return torch.cat([totals, (norm if scale is None or self._descent.unscales else norm / scale)[None]])

    def _scale(self) -> Any:
        """The scale of the loss, on the device; None if the optimiser has none."""
        scaled = isinstance(self._optimiser, keras.optimizers.LossScaleOptimizer)
        return self._optimiser.scale_loss(torch.ones((), device=self._device)) if scaled else None

    def _own_gradients(self, images: Any, labels: Any, scale: Any) -> tuple[Any, list[Any]]:
        """Compute this rank's sums, and the gradients of its mean loss times the scale."""
        outputs = self._forward(images, training=True)
        losses = self._loss(labels, outputs)
        if self._correct is not None:
            self._correct.add(labels, outputs)
        loss = losses.mean() if scale is None else losses.mean() * scale
        found = torch.autograd.grad(loss, self._parameters.leaves(self._trained))
        sums = torch.stack([losses.detach().sum(), self._count(images)])
        return sums, self._parameters.gradients(found, self._trained)

    def _count(self, images: Any) -> Any:
        # Filled on the device: copying the number there would wait for what is under way.
        return torch.full((), float(len(images)), device=self._device)

    def evaluate(self, images: Any, labels: Any) -> Any:
        """Evaluate; give sums over all ranks: loss, metrics, images."""
        with self._transfer(images, labels) as given:
            own = self._own_scores(*self._floats(*given))
        return self._collective.sum_tensors([own], "scores")[0]

    def _own_scores(self, images: Any, labels: Any) -> Any:
        """Evaluate this rank's images; give the sums of loss and metrics, and their number."""
        if not len(images):
            return torch.zeros(len(self._scores) + 1, device=self._device)
        with torch.no_grad():
            outputs = self._forward(images, training=False)
            sums = [score(labels, outputs).float().sum() for score in self._scores]
        return torch.stack([*sums, self._count(images)])

    def read(self, results: Sequence[Any]) -> NDArray[np.float32]:
        """Wait for the steps that gave these results; give a row for each of them."""
        rows: NDArray[np.float32] = torch.stack(list(results)).cpu().numpy()
        return rows
