"""The operation count of a built Keras model: from its real weights and tensors, layer by layer.

This is the second way to the number of `aiperf.network.operations.count`: the rules are the same,
but every shape comes from the model that Keras built. It takes any functional or sequential model
whose inputs have fixed sizes; models nested in it may leave theirs free.

Weights that do not train have no gradient and no update. A gradient passes through a frozen layer
only if a layer before it trains.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, NamedTuple

import keras

from aiperf.errors import UncountedLayerError, UsageError
from aiperf.network.layers import Shape
from aiperf.network.operations import (
    AIPERF_1,
    KERNEL_KINDS,
    LayerCount,
    LayerFacts,
    NetworkCount,
    Operations,
    RuleSet,
    sees_only_images,
)
from replica.measure.counting.keras_layers import READERS, Call, CountedPart, NotCountedError, check_weights


class _Tensor(NamedTuple):
    """The facts of a tensor of the model, at one use of the layer that gives it."""

    shape: Shape
    """Shape without the batch."""
    only_images: bool
    """True if only layers that count zero lie between the network's input and the tensor."""
    trained: bool = False
    """True if a layer that trains lies before it, so that gradients pass through it."""
    frozen: bool = False
    """True if a layer with weights that do not train lies before it."""


@dataclass
class _Walk:
    """State of a walk over a model and the models nested in it."""

    rule_set: RuleSet
    trained: frozenset[int]
    """Ids of the variables that train."""
    layers: list[LayerCount] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    tensors: dict[int, _Tensor] = field(default_factory=dict)
    """Facts by tensor; a nested model's tensors have those of its latest call."""
    weighed: set[int] = field(default_factory=set)
    """Ids of layers whose parameters are counted: a layer that is used twice has them once."""


@dataclass(frozen=True)
class _Use:
    """One call of a layer: its name, its parts, and its inputs."""

    layer: Any
    name: str
    inputs: Sequence[_Tensor]
    parts: Sequence[CountedPart]
    trains: bool
    """True if its weights train; also if it has none."""


def count_model(model: Any, rule_set: RuleSet = AIPERF_1) -> NetworkCount:
    """Count a functional or sequential Keras model, per image.

    Raises UncountedLayerError listing every layer that the rules do not cover, and UsageError if
    the model has no graph (a subclassed model, an unbuilt sequential one) or no fixed image size.
    """
    graph_of(model)
    walk = _Walk(rule_set, frozenset(id(variable) for variable in model.trainable_variables))
    _visit(model, walk, prefix="")
    if walk.problems:
        raise UncountedLayerError(walk.problems)
    return NetworkCount(tuple(walk.layers))


def graph_of(model: Any) -> Any:
    """Find the functional model that a model is, or that it holds.

    Raises UsageError for a model without one: a subclassed model, or an unbuilt sequential one.
    """
    if isinstance(model, keras.Sequential):
        if not model.built or model._functional is None:
            raise UsageError(f"model {model.name!r} is not built: give it an Input of fixed size")
        return model._functional
    if not hasattr(model, "_nodes_by_depth"):
        raise UsageError(f"model {model.name!r} is subclassed: only functional and sequential models have a graph")
    return model


def _calls(model: Any) -> Iterator[Any]:
    """Yield every use of a layer in topological order, from internals of Keras's `Function`."""
    graph = graph_of(model)
    for depth in sorted(graph._nodes_by_depth, reverse=True):
        yield from graph._nodes_by_depth[depth]


def _visit(model: Any, walk: _Walk, prefix: str) -> None:
    for node in _calls(model):
        layer = node.operation
        name = f"{prefix}{layer.name}"
        if isinstance(layer, keras.Model):
            _enter(layer, node, walk, f"{name}/")
            continue
        if prefix and isinstance(layer, keras.layers.InputLayer):
            continue  # the outer model's tensor, which `_enter` has described
        inputs = [walk.tensors[id(tensor)] for tensor in node.input_tensors]
        shapes = _output_shapes(node, walk)
        parts, trains = _parts(layer, Call(layer, tuple(tensor.shape for tensor in inputs), shapes[0]), name, walk)
        _count_parts(_Use(layer, name, inputs, parts, trains), walk)
        images = all(tensor.only_images for tensor in inputs)
        weighs = bool(getattr(layer, "weights", ()))
        for tensor, shape in zip(node.output_tensors, shapes, strict=True):
            walk.tensors[id(tensor)] = _Tensor(
                shape,
                bool(parts) and all(sees_only_images(kind, [images]) for kind, _ in parts),
                any(tensor.trained for tensor in inputs) or (weighs and trains),
                any(tensor.frozen for tensor in inputs) or (weighs and not trains),
            )


def _enter(inner: Any, node: Any, walk: _Walk, prefix: str) -> None:
    graph = graph_of(inner)
    # A nested model has input tensors of its own, which stand for those that it is called on.
    for outside, inside in zip(node.input_tensors, graph.inputs, strict=True):
        walk.tensors[id(inside)] = walk.tensors[id(outside)]
    _visit(inner, walk, prefix)
    for outside, inside in zip(node.output_tensors, graph.outputs, strict=True):
        walk.tensors[id(outside)] = walk.tensors[id(inside)]


def _output_shapes(node: Any, walk: _Walk) -> list[Shape]:
    """Find the shapes of a call's outputs.

    A nested model was built for inputs of its own, which may be of any size: its layers are asked
    again, for the tensors of this call.
    """
    recorded = [tuple(tensor.shape[1:]) for tensor in node.output_tensors]
    read = {id(tensor): walk.tensors[id(tensor)].shape for tensor in node.input_tensors}
    if any(tuple(tensor.shape[1:]) != read[id(tensor)] for tensor in node.input_tensors):
        given = {id(t): keras.KerasTensor((t.shape[0], *read[id(t)]), dtype=t.dtype) for t in node.input_tensors}
        values, named = node.arguments.fill_in(given)
        found = keras.tree.flatten(node.operation.compute_output_spec(*values, **named))
        recorded = [tuple(tensor.shape[1:]) for tensor in found]
    for tensor, shape in zip(node.output_tensors, recorded, strict=True):
        if any(size is None for size in shape):
            raise UsageError(f"tensor {tensor.name!r} has shape {shape}: counting needs a fixed image size")
    return recorded


def _parts(layer: Any, call: Call, name: str, walk: _Walk) -> tuple[list[CountedPart], bool]:
    """The counted parts of a call, none if the rules do not cover it; True if its weights train."""
    kind = type(layer).__name__
    reader = READERS.get(type(layer))
    if reader is None:
        walk.problems.append(f"{name} ({kind})")
        return [], True
    try:
        trains = check_weights(layer, walk.trained)
        return reader(call), trains
    except NotCountedError as error:
        walk.problems.append(f"{name} ({kind}: {error})")
        return [], True


def _count_parts(use: _Use, walk: _Walk) -> None:
    layer, name = use.layer, use.name
    for index, (kind, facts) in enumerate(use.parts):
        if not walk.rule_set.covers(kind, facts.output):
            fused = f": activation {kind!r}" if index else ""
            walk.problems.append(f"{name} ({type(layer).__name__}{fused})")
            continue
        parameters = 0
        # Only the first part of a layer owns its weights, and only at its first use.
        if index == 0 and id(layer) not in walk.weighed:
            walk.weighed.add(id(layer))
            parameters = layer.count_params()
        label = name if index == 0 else f"{name}_{kind}"
        elements = sum(map(prod, (*facts.inputs, facts.output))) + (0 if index else layer.count_params())
        operations = _operations(use, index, kind, facts, walk)
        walk.layers.append(LayerCount(label, kind, operations, parameters, elements))


def _operations(use: _Use, index: int, kind: str, facts: LayerFacts, walk: _Walk) -> Operations:
    trained = any(tensor.trained for tensor in use.inputs)
    if not use.trains:
        # No gradient of the weights and no update; that of the input costs one forward pass.
        forward = walk.rule_set.count(kind, facts).forward
        return Operations(forward, forward if trained and kind in KERNEL_KINDS else 0)
    # As before the network's input: nothing trains before these weights, so nothing needs the
    # gradient of what they read.
    after_frozen = not trained and any(tensor.frozen for tensor in use.inputs)
    only_images = all(tensor.only_images for tensor in use.inputs)
    first = index == 0 and (only_images or after_frozen)
    return walk.rule_set.count(kind, replace(facts, reads_network_input=first))
