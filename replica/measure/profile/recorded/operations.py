"""The time of a step by kind of operation, and by kind of layer with its counted operations."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from aiperf.network.architecture import Architecture
from aiperf.network.operations import RuleSet, count
from replica.measure.profile.recorded.phases import event_phase
from replica.measure.profile.recorded.recording import Event, segments

NO_LAYER = "no layer"
"""Kind of losses, the update, sums of gradients and the input, which count no operations."""


@dataclass(frozen=True, slots=True)
class OperationTime:
    """The self time of all operations of one kind in one phase, and their number, per step."""

    operation: str
    phase: str
    library: str
    seconds: float
    calls: float


@dataclass(frozen=True, slots=True)
class LayerTime:
    """The self time of all layers of one kind per step, and their counted operations."""

    kind: str
    layers: int
    seconds: float
    operations: int
    """Counted operations, forward and backward, of all images of a step; 0 for other kinds."""


def operation_times(events: Iterable[Event], steps: int) -> list[OperationTime]:
    """List all kinds of operations, the longest first."""
    totals: dict[tuple[str, str, str], float] = {}
    calls: dict[tuple[str, str, str], int] = {}
    events = list(events)
    for event in events:
        calls[_key(event)] = calls.get(_key(event), 0) + 1
    for part in segments(events):
        totals[_key(part.event)] = totals.get(_key(part.event), 0.0) + part.seconds
    found = [OperationTime(*key, totals.get(key, 0.0) / steps, number / steps) for key, number in calls.items()]
    return sorted(found, key=lambda item: -item.seconds)


def _key(event: Event) -> tuple[str, str, str]:
    return event.operation, event_phase(event), event.library


def layer_times(
    events: Iterable[Event], steps: int, architecture: Architecture, rule_set: RuleSet, batch_size: int
) -> list[LayerTime]:
    """List all kinds of layers, the longest first; the sum is that of all operations.

    None if the recording does not name layers.
    """
    names = {node.name: node.layer.kind for node in architecture.nodes}
    seconds: dict[str, float] = {}
    for part in segments(events):
        kind = kind_of(part.event.node, names)
        seconds[kind] = seconds.get(kind, 0.0) + part.seconds / steps
    if not seconds.keys() - {NO_LAYER}:
        return []
    found = []
    for kind, total in count(architecture, rule_set).by_kind.items():
        operations = batch_size * total.operations.total
        if kind in seconds or operations:
            found.append(LayerTime(kind, total.count, seconds.get(kind, 0.0), operations))
    if NO_LAYER in seconds:
        found.append(LayerTime(NO_LAYER, 0, seconds[NO_LAYER], 0))
    return sorted(found, key=lambda item: -item.seconds)


def kind_of(node: str, names: dict[str, str]) -> str:
    """The kind of the layer in a node's path: `functional/conv1_1/convolution` is of `conv1`.

    JAX names its transformations around the layer: `jit(step)/transpose(jvp(conv1))/dot_general`.
    """
    for wrapped in node.split("/"):
        part = wrapped.rpartition("(")[2].rstrip(")")
        for name in (part, re.sub(r"_\d+$", "", part)):
            if name in names:
                return names[name]
    return NO_LAYER
