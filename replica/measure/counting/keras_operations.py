"""The operation count of a built Keras model: from its real weights and tensors, layer by layer.

This is the second way to the number of `aiperf.network.operations.count`: the rules are the same,
but every shape comes from the model that Keras built. It takes any functional or sequential model
with fixed image sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import keras

from aiperf.errors import UncountedLayerError, UsageError
from aiperf.network.layers import Shape
from aiperf.network.operations import AIPERF_1, LayerCount, NetworkCount, RuleSet, sees_only_images
from replica.measure.counting.keras_layers import READERS, Call, CountedPart, NotCountedError


@dataclass
class _Walk:
    """State of a walk over a model and the models nested in it."""

    rule_set: RuleSet
    layers: list[LayerCount] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    only_images: dict[int, bool] = field(default_factory=dict)
    """By tensor: whether only layers that count zero lie between the network's input and it."""
    weighed: set[int] = field(default_factory=set)
    """Layers whose parameters are counted: a layer that is used twice has its weights once."""


def count_model(model: Any, rule_set: RuleSet = AIPERF_1) -> NetworkCount:
    """Count a functional or sequential Keras model, per image.

    Raises UncountedLayerError listing every layer that the rules do not cover, and UsageError if
    the model has no graph (a subclassed model, an unbuilt sequential one) or no fixed image size.
    """
    walk = _Walk(rule_set)
    _visit(model, walk, prefix="")
    if walk.problems:
        raise UncountedLayerError(walk.problems)
    return NetworkCount(tuple(walk.layers))


def _graph(model: Any) -> Any:
    if isinstance(model, keras.Sequential):
        if not model.built or model._functional is None:
            raise UsageError(f"model {model.name!r} is not built: give it an Input of fixed size")
        return model._functional
    if not hasattr(model, "_nodes_by_depth"):
        raise UsageError(f"model {model.name!r} is subclassed: only functional and sequential models have a graph")
    return model


def _calls(model: Any) -> Iterator[Any]:
    """Every use of a layer in topological order, from internals of Keras's `Function`."""
    graph = _graph(model)
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
        inputs = [walk.only_images[id(tensor)] for tensor in node.input_tensors]
        parts = _parts(layer, node, name, walk)
        _count_parts(layer, name, parts, all(inputs), walk)
        seen = bool(parts) and all(sees_only_images(kind, [all(inputs)]) for kind, _ in parts)
        for tensor in node.output_tensors:
            walk.only_images[id(tensor)] = seen


def _enter(inner: Any, node: Any, walk: _Walk, prefix: str) -> None:
    graph = _graph(inner)
    for outside, inside in zip(node.input_tensors, graph.inputs, strict=True):
        walk.only_images[id(inside)] = walk.only_images[id(outside)]
    _visit(inner, walk, prefix)
    for outside, inside in zip(node.output_tensors, graph.outputs, strict=True):
        walk.only_images[id(outside)] = walk.only_images[id(inside)]


def _parts(layer: Any, node: Any, name: str, walk: _Walk) -> list[CountedPart]:
    kind = type(layer).__name__
    reader = READERS.get(type(layer))
    if reader is None:
        walk.problems.append(f"{name} ({kind})")
        return []
    try:
        call = Call(layer, tuple(map(_shape, node.input_tensors)), _shape(node.output_tensors[0]))
        return reader(call)
    except NotCountedError as error:
        walk.problems.append(f"{name} ({kind}: {error})")
        return []


def _shape(tensor: Any) -> Shape:
    shape = tuple(tensor.shape[1:])
    if any(size is None for size in shape):
        raise UsageError(f"tensor {tensor.name!r} has shape {shape}: counting needs a fixed image size")
    return shape


def _count_parts(layer: Any, name: str, parts: list[CountedPart], only_images: bool, walk: _Walk) -> None:
    for index, (kind, facts) in enumerate(parts):
        if not walk.rule_set.covers(kind, facts.output):
            fused = f": activation {kind!r}" if index else ""
            walk.problems.append(f"{name} ({type(layer).__name__}{fused})")
            continue
        seen = replace(facts, reads_network_input=index == 0 and only_images)
        parameters = 0
        if index == 0 and id(layer) not in walk.weighed:
            walk.weighed.add(id(layer))
            parameters = layer.count_params()
        label = name if index == 0 else f"{name}_{kind}"
        elements = sum(map(prod, (*facts.inputs, facts.output))) + (0 if index else layer.count_params())
        walk.layers.append(LayerCount(label, kind, walk.rule_set.count(kind, seen), parameters, elements))
