"""The nodes of an architecture in a built Keras model, which has a layer for several of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiperf.errors import TrialFailedError
from aiperf.network.architecture import Architecture


@dataclass(frozen=True)
class Uses:
    """The layer calls of a built model, by the name of the architecture's node."""

    calls: Mapping[str, Any]
    """Keras's node of each call, with its operation and its tensors."""
    names: Mapping[tuple[int, int], str]
    """Names of the nodes by layer (id) and number of the call."""

    def sources(self, tensors: Any) -> tuple[str, ...]:
        """Names of the nodes that made these tensors.

        Raises KeyError for a tensor of a layer that no node has.
        """
        found = tensors if isinstance(tensors, list | tuple) else [tensors]
        histories = [tensor._keras_history for tensor in found]
        return tuple(self.names[id(history.operation), history.node_index] for history in histories)


def uses_of(model: Any, architecture: Architecture) -> Uses:
    """Find every node's call: a node that shares a layer has the next call after the one before.

    Raises TrialFailedError ("mismatch") if the model has not exactly these calls.
    """
    layers = {layer.name: layer for layer in model.layers}
    # A layer that several models share has nodes of all of them: only this model's count.
    inside = {id(call) for calls in model._nodes_by_depth.values() for call in calls}
    left = {
        name: [number for number, call in enumerate(layer._inbound_nodes) if id(call) in inside]
        for name, layer in layers.items()
    }
    calls: dict[str, Any] = {}
    names: dict[tuple[int, int], str] = {}
    for node in architecture.nodes:
        owner = node.shares or node.name
        if not left.get(owner):
            raise TrialFailedError("mismatch", f"layer {node.name!r} is counted but not in the built model")
        number = left[owner].pop(0)
        calls[node.name] = layers[owner]._inbound_nodes[number]
        names[id(layers[owner]), number] = node.name
    uncounted = [name for name, calls_left in left.items() if calls_left]
    if uncounted:
        raise TrialFailedError("mismatch", f"the built model has layers that are not counted: {', '.join(uncounted)}")
    return Uses(calls, names)
