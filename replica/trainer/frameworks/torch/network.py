"""The forward pass of a Keras model in PyTorch's own operations, on the model's variables.

Keras's layers compute batch normalisation on PyTorch in five passes over the images, and transpose
every kernel twice a step. Here normalisation is PyTorch's fused one, kernels lie in memory as
convolutions take them, sums and ReLUs overwrite what nothing else reads, and what does not depend
on the batch is decided once, when the network is made.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import torch

from replica.trainer.frameworks.torch.operations import (
    FRESH,
    NO_EDGES,
    OPERATIONS,
    Compute,
    Edges,
    NotCoveredError,
    Place,
    Statistics,
)
from replica.trainer.frameworks.torch.parameters import Parameters, Tensor
from replica.trainer.model import objectives

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Step:
    compute: Compute
    inputs: tuple[str, ...]
    output: str
    dtype: Any
    """Type that inputs are converted to; None if they have it."""
    last_reads: tuple[str, ...]
    """Names of the inputs that no later step reads."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution that differs from others in what libraries choose an algorithm by."""

    compute: Compute
    shape: tuple[int, ...]
    """Shape of an image that it takes: height, width, channels."""
    dtype: Any
    kernel: Any
    """The kernel as Keras's variable."""


class Network:
    """The function of a model, up to the input of its final softmax if it has one.

    Losses take the logits: the logarithm of a probability that was rounded to 0 would be infinite.
    Raises NotCoveredError naming a layer that is not in `OPERATIONS`.
    """

    def __init__(self, model: Any) -> None:
        if len(model.outputs) != 1 or len(model.inputs) != 1 or len(model.inputs[0].shape) not in (2, 4):
            raise NotCoveredError("several inputs or outputs, or neither images nor vectors")
        last = model.output._keras_history.operation
        self.gives_logits = isinstance(last, keras.layers.Softmax)
        self.parameters = Parameters()
        self._statistics = Statistics()
        self._convolutions: dict[tuple[Any, ...], Convolution] = {}
        layers = [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]
        sources = {layer: _sources(layer) for layer in layers if not (self.gives_logits and layer is last)}
        (self._input,) = (layer.name for layer in model.layers if isinstance(layer, keras.layers.InputLayer))
        self._output = _sources(last)[0].name if self.gives_logits else last.name
        self._steps = self._plan(sources)

    def _plan(self, sources: dict[Any, list[Any]]) -> list[_Step]:
        readers = Counter(source.name for inputs in sources.values() for source in inputs)
        readers[self._output] += 1
        # A layer of zeros in front of a convolution is left out: the convolution pads by itself,
        # which saves a copy of the images.
        folded = {layer: _folded(layer, inputs, readers) for layer, inputs in sources.items()}
        left = {inputs[0] for layer, inputs in sources.items() if folded[layer] is not None}
        steps: list[_Step] = []
        for layer, inputs in sources.items():
            if layer in left:
                continue
            edges = folded[layer]
            given = inputs if edges is None else sources[inputs[0]]
            # An input may be overwritten if this is its only reader and autograd does not need it:
            # the gradients of the layers in `FRESH` do not use their outputs.
            owned = tuple(type(each) in FRESH and readers[each.name] == 1 for each in given)
            place = Place(self.parameters, self._statistics, edges or NO_EDGES, owned)
            dtype = None if all(_type(each) == _type(layer) for each in given) else getattr(torch, _type(layer))
            names = tuple(each.name for each in given)
            compute = OPERATIONS[type(layer)](layer, place)
            steps.append(_Step(compute, names, layer.name, dtype, ()))
            if isinstance(layer, keras.layers.Conv2D | keras.layers.DepthwiseConv2D):
                self._note(layer, given[0], place.edges, compute)
        return self._with_last_reads(steps)

    def _note(self, layer: Any, before: Any, edges: Edges, compute: Compute) -> None:
        """Keep a convolution if it differs from all so far."""
        shape, kernel = tuple(before.output.shape[1:]), layer.kernel
        settings = (layer.strides, layer.padding, layer.dilation_rate, layer.use_bias, layer.compute_dtype)
        own = Convolution(compute, shape, getattr(torch, layer.compute_dtype), kernel)
        self._convolutions.setdefault((type(layer), shape, tuple(kernel.shape), edges, *settings), own)

    def try_convolutions(self, images: int) -> int:
        """Compute each different convolution once, forward and backward; give their number.

        cuDNN and MIOpen then know the fastest algorithm for each shape of a batch of this many
        images, at the memory of one convolution instead of a whole network's.
        """
        for each in self._convolutions.values():
            height, width, channels = each.shape
            (kernel,) = self.parameters.leaves([each.kernel])
            zeros = torch.zeros(images, height, width, channels, dtype=each.dtype, device=kernel.device)
            given = zeros.permute(0, 3, 1, 2).requires_grad_()
            outputs = each.compute(True, given)
            torch.autograd.grad(outputs, [given, kernel], torch.zeros_like(outputs))
        return len(self._convolutions)

    def _with_last_reads(self, steps: Sequence[_Step]) -> list[_Step]:
        seen = {self._output}
        found: list[_Step] = []
        for step in reversed(steps):
            last = tuple(name for name in dict.fromkeys(step.inputs) if name not in seen)
            seen.update(last)
            found.append(_Step(step.compute, step.inputs, step.output, step.dtype, last))
        return found[::-1]

    def __call__(self, images: Tensor, training: bool) -> Tensor:
        """Compute outputs (N, classes) float32 of images (N, H, W, C), and update statistics."""
        self.parameters.refresh()
        # A view, not a copy: (N, C, H, W) by name, with the channels innermost in memory as they
        # came.
        values = {self._input: images.permute(0, 3, 1, 2) if images.ndim == 4 else images}
        for step in self._steps:
            given = [values[name] for name in step.inputs]
            if step.dtype is not None:
                given = [each.to(step.dtype) for each in given]
            # Only `given` holds these from here on: without gradients, as in an evaluation, their
            # memory is free as soon as the step has computed.
            for name in step.last_reads:
                del values[name]
            values[step.output] = step.compute(training, *given)
        self._statistics.follow()
        return values[self._output].float()


class KerasNetwork:
    """The function of a model by Keras's own layers, of any class."""

    def __init__(self, model: Any) -> None:
        body = objectives.without_softmax(model)
        self.gives_logits = body is not None
        self.parameters = Parameters()
        self._body = model if body is None else body

    def __call__(self, images: Tensor, training: bool) -> Tensor:
        """Compute the outputs of images (N, ...), and update moving statistics."""
        return self._body(images, training=training)


def network_of(model: Any) -> Network | KerasNetwork:
    """Make the forward pass in PyTorch's own operations if they cover all layers, else Keras's."""
    try:
        return Network(model)
    except NotCoveredError as error:
        log.info("the network is computed by Keras's layers: %s", error)
        return KerasNetwork(model)


def _sources(layer: Any) -> list[Any]:
    """The layers in front of a layer. Raises NotCoveredError if it is used more than once."""
    if not isinstance(layer, keras.layers.Layer) or type(layer) not in OPERATIONS:
        raise NotCoveredError(f"{layer.name}: {type(layer).__name__}")
    if len(layer._inbound_nodes) != 1:
        raise NotCoveredError(f"{layer.name}: it is used {len(layer._inbound_nodes)} times")
    inputs = layer.input if isinstance(layer.input, list | tuple) else [layer.input]
    return [tensor._keras_history.operation for tensor in inputs]


def _type(layer: Any) -> str:
    # Batches come in float32, whatever the type of the layers.
    return "float32" if isinstance(layer, keras.layers.InputLayer) else str(layer.compute_dtype)


def _folded(layer: Any, inputs: Sequence[Any], readers: Counter[str]) -> Edges | None:
    """The zeros that the layer in front adds for this convolution alone; None if there are none."""
    before = inputs[0]
    adds = isinstance(before, keras.layers.ZeroPadding2D) and readers[before.name] == 1
    if not adds or not isinstance(layer, keras.layers.Conv2D | keras.layers.DepthwiseConv2D):
        return None
    return tuple(map(tuple, before.padding)) if layer.padding == "valid" else None  # type: ignore[return-value]
