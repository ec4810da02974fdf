"""The forward pass of a Keras model in PyTorch's own operations, on the model's variables.

Keras's layers compute batch normalisation on PyTorch in five passes over the images, and transpose
every kernel twice a step. Here normalisation is PyTorch's fused one, kernels lie in memory as
convolutions take them, sums and ReLUs overwrite what nothing else reads, what lies between
convolutions can be compiled (`regions`), and what does not depend on the batch is decided once,
when the network is made.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import torch

from replica.trainer.failures import is_out_of_memory
from replica.trainer.frameworks.torch.layers import (
    FRESH,
    NO_EDGES,
    OPERATIONS,
    PARTS,
    Compute,
    Draws,
    Light,
    NotCoveredError,
    Place,
    Statistics,
)
from replica.trainer.frameworks.torch.parameters import Parameters, Tensor
from replica.trainer.frameworks.torch.regions import Edges, Fusion, Program, Region
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
class Sample:
    """A step that differs from others in what libraries and compilers choose a program by."""

    compute: Compute
    shapes: tuple[tuple[int, ...], ...]
    """Shapes of an example that it takes: height, width, channels; or features."""
    dtype: Any
    variables: tuple[Any, ...]
    """Its trained Keras variables."""


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
        self.fusion = Fusion()
        self._device = model.weights[0].value.device
        self._draws: list[Draws] = []
        self._samples: dict[tuple[Any, ...], Sample] = {}
        layers = [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]
        sources = {layer: _sources(layer) for layer in layers if not (self.gives_logits and layer is last)}
        (self._input,) = (layer.name for layer in model.layers if isinstance(layer, keras.layers.InputLayer))
        self._output = _sources(last)[0].name if self.gives_logits else last.name
        self._steps = self._plan(sources)

    @property
    def draws(self) -> Sequence[Draws]:
        """The draws of all dropouts."""
        return self._draws

    def seed(self) -> None:
        """Seed the draws of the next pass in training."""
        for each in self._draws:
            each.seed()

    def _plan(self, sources: dict[Any, list[Any]]) -> list[_Step]:
        readers = Counter(source.name for inputs in sources.values() for source in inputs)
        # The caller reads it as well: it is neither overwritten nor freed.
        readers[self._output] += 1
        # A layer of zeros in front of a convolution is left out: the convolution pads by itself,
        # which saves a copy of the images.
        folded = {layer: _folded(layer, inputs, readers) for layer, inputs in sources.items()}
        left = {inputs[0] for layer, inputs in sources.items() if folded[layer] is not None}
        given = {
            layer: inputs if folded[layer] is None else sources[inputs[0]]
            for layer, inputs in sources.items()
            if layer not in left
        }
        made: dict[Any, Any] = {}
        for layer, inputs in given.items():
            # An input may be overwritten if this is its only reader and autograd does not need it:
            # the gradients of the layers in `FRESH` do not use their outputs.
            owned = tuple(type(each) in FRESH and readers[each.name] == 1 for each in inputs)
            place = Place(self.parameters, self._statistics, folded[layer] or NO_EDGES, owned, self._draws)
            make = PARTS.get(type(layer)) or OPERATIONS[type(layer)]
            made[layer] = make(layer, place)
        regions = _regions(given, made, readers)
        steps: list[_Step] = []
        for layer, own in made.items():
            members = regions.get(layer)
            if members is None and isinstance(own, Light):
                continue  # in the region of another layer
            compute, inputs = (own, given[layer]) if members is None else self._region(members, given, made)
            dtype = None if all(_type(each) == _type(layer) for each in inputs) else getattr(torch, _type(layer))
            steps.append(_Step(compute, tuple(each.name for each in inputs), layer.name, dtype, ()))
            self._note(layer, inputs, compute, members or [layer], folded[layer])
        return self._with_last_reads(steps)

    def _region(
        self, members: Sequence[Any], given: dict[Any, list[Any]], made: dict[Any, Any]
    ) -> tuple[Region, list[Any]]:
        """The region of these layers, which are in the order of the passes, and its inputs."""
        inputs = list(dict.fromkeys(each for layer in members for each in given[layer] if each not in members))
        numbers = {layer: number for number, layer in enumerate([*inputs, *members])}
        parts = tuple((made[layer].part, tuple(numbers[each] for each in given[layer])) for layer in members)
        tensors = [tensor for layer in members for tensor in made[layer].tensors]
        keep = [made[layer].number for layer in members if made[layer].number is not None]
        take = [partial(self._statistics.keep, number) for number in keep]
        return Region(Program(len(inputs), parts), tensors, take, self.fusion), inputs

    def _note(
        self, layer: Any, inputs: Sequence[Any], compute: Any, members: Sequence[Any], edges: Edges | None
    ) -> None:
        """Keep a convolution or a region if it differs from all so far."""
        shapes = tuple(tuple(each.output.shape[1:]) for each in inputs)
        if isinstance(compute, Region):
            own: tuple[Any, ...] = (compute.program,)
        elif isinstance(layer, keras.layers.Conv2D | keras.layers.DepthwiseConv2D):
            own = (tuple(layer.kernel.shape), edges, layer.strides, layer.padding, layer.dilation_rate, layer.use_bias)
        else:
            return
        variables = tuple(variable for each in members for variable in each.trainable_variables)
        sample = Sample(compute, shapes, getattr(torch, _type(layer)), variables)
        self._samples.setdefault((type(layer), shapes, sample.dtype, *own), sample)

    def try_steps(self, images: int) -> int:
        """Compute each different convolution and region once, forward and backward.

        Gives the number of those that there was memory for. cuDNN then knows the fastest algorithm
        for each shape of a batch of this many images, MIOpen a fast one; and regions are compiled
        for it, at the memory of one of them instead of a whole network's.
        """
        tried = 0
        for each in self._samples.values():
            try:
                self._try(each, images)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                log.info("chosen and compiled as the training begins: %s: %s", each.shapes, error)
            else:
                tried += 1
            # The moments of a batch of zeros must not move the network's statistics.
            self._statistics.forget()
        return tried

    def _try(self, sample: Sample, images: int) -> None:
        parameters = self.parameters.leaves(sample.variables)
        inputs = [_zeros((images, *shape), sample.dtype, self._device) for shape in sample.shapes]
        with torch.no_grad():
            sample.compute(False, *[value.detach().clone() for value in inputs])
        # A step may overwrite what it gets, but not what gradients are taken by.
        outputs = sample.compute(True, *[value * 1 for value in inputs])
        torch.autograd.grad(outputs, [*inputs, *parameters], torch.zeros_like(outputs))

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
        # Behind the last step, so that all layers follow in a few operations instead of a few each.
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


def _zeros(shape: Sequence[int], dtype: Any, device: Any) -> Tensor:
    """Zeros that autograd follows, as they come from the layer before."""
    zeros = torch.zeros(*shape, dtype=dtype, device=device)
    return (zeros.permute(0, 3, 1, 2) if len(shape) == 4 else zeros).requires_grad_()


def _regions(given: dict[Any, list[Any]], made: dict[Any, Any], readers: Counter[str]) -> dict[Any, list[Any]]:
    """The layers of each region, in the order of the passes, by the layer that gives its output.

    A light layer joins the one that reads it if nothing else does: a region has one output.
    """
    ends: dict[Any, Any] = {}
    # Backwards: a layer's reader knows its region's end before the layer is looked at.
    for layer in reversed([each for each in given if isinstance(made[each], Light)]):
        ends.setdefault(layer, layer)
        for each in given[layer]:
            if isinstance(made.get(each), Light) and readers[each.name] == 1 and _type(each) == _type(layer):
                ends[each] = ends[layer]
    regions: dict[Any, list[Any]] = {}
    for layer in given:
        if layer in ends:
            regions.setdefault(ends[layer], []).append(layer)
    return regions


def network_of(model: Any) -> Network | KerasNetwork:
    """Make the forward pass in PyTorch's own operations if they cover all layers, else Keras's."""
    try:
        return Network(model)
    except NotCoveredError as error:
        log.info("the network is computed by Keras's layers: %s", error)
        return KerasNetwork(model)


def _sources(layer: Any) -> list[Any]:
    """The layers in front of a layer. Raises NotCoveredError if it is used more than once."""
    if type(layer) not in OPERATIONS and type(layer) not in PARTS:
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
