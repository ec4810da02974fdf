"""Recordings of TensorFlow's profiler (XSpace): time by operation, and memory at its peak.

On CPUs, threads of the executor are lines of the host's plane, with events named `node:Operation`.
On GPUs, kernels in a device's plane name their node. Durations are self times: without those of an
event's children on the same line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiperf.errors import EnvironmentNotReadyError

BACKWARD = "gradient_tape/"
"""Part of the names that TensorFlow gives to nodes of the backward pass."""

ADD_GRADIENTS = "AddN"
"""The sum of gradients of a tensor that several layers read.

The only operation of the backward pass without it in its name.
"""

UPDATE = ("sgd", "loss_scale", "Assign", "ResourceApply")
INPUT = ("Iterator", "DecodeJpeg", "ParallelMap", "TensorSlice", "Prefetch", "Batch")
PICOSECONDS = 1e-12


@dataclass(frozen=True, slots=True)
class OperationTime:
    """Seconds of self time of all nodes of one kind in one phase, and how often they ran."""

    operation: str
    phase: str
    seconds: float
    calls: int


def load(folder: Path) -> Any:
    """Read the newest recording below a folder.

    Raises EnvironmentNotReadyError if there is none.
    """
    from tensorflow.tsl.profiler.protobuf import xplane_pb2  # noqa: PLC0415

    files = sorted(folder.rglob("*.xplane.pb"))
    if not files:
        raise EnvironmentNotReadyError(["TensorFlow's profiler wrote no recording"])
    space = xplane_pb2.XSpace()
    space.ParseFromString(files[-1].read_bytes())
    return space


def operation_times(space: Any) -> list[OperationTime]:
    """All operations, the longest first."""
    devices = [plane for plane in space.planes if plane.name.startswith("/device:GPU")]
    planes = devices or [plane for plane in space.planes if plane.name == "/host:CPU"]
    totals: dict[tuple[str, str], tuple[float, int]] = {}
    for plane in planes:
        for line in plane.lines:
            for node, operation, seconds in _events(plane, line, bool(devices)):
                key = (plain(operation), phase_of(node, operation))
                before = totals.get(key, (0.0, 0))
                totals[key] = (before[0] + seconds, before[1] + 1)
    found = [OperationTime(operation, phase, *total) for (operation, phase), total in totals.items()]
    return sorted(found, key=lambda item: -item.seconds)


def phase_of(node: str, operation: str) -> str:
    """The phase of an iteration that a node belongs to: forward, backward, update or input."""
    # XSpace has no field for the phase: the names that Keras and TensorFlow give are all there is.
    # Backward comes first, because gradients carry the name of their layer, which may contain a
    # word of the update.
    if BACKWARD in node or operation == ADD_GRADIENTS:
        return "backward"
    if any(word in node for word in UPDATE) or any(word in operation for word in UPDATE):
        return "update"
    return "input" if any(word in operation for word in INPUT) else "forward"


def plain(operation: str) -> str:
    """The name of an operation without that of the library that computes it."""
    for prefix in ("_MklNative", "_Mkl"):
        operation = operation.removeprefix(prefix)
    return operation


def _events(plane: Any, line: Any, device: bool) -> Iterator[tuple[str, str, float]]:
    """Node, operation and self time of the events that are operations."""
    events = sorted(line.events, key=lambda event: (event.offset_ps, -event.duration_ps))
    inside = _time_inside(events)
    for number, event in enumerate(events):
        name = _device_name(plane, event) if device else plane.event_metadata[event.metadata_id].name
        node, colon, operation = name.rpartition(":")
        if colon and operation.lstrip("_").isalnum() and not operation[:1].isdigit() and "::" not in name:
            yield node, operation, (event.duration_ps - inside[number]) * PICOSECONDS


def _device_name(plane: Any, event: Any) -> str:
    """`node:Operation` of a kernel, from the notes that the profiler keeps with it."""
    for stat in [*event.stats, *plane.event_metadata[event.metadata_id].stats]:
        if plane.stat_metadata[stat.metadata_id].name == "tf_op":
            return str(stat_value(plane, stat))
    return ""


def stat_value(plane: Any, stat: Any) -> Any:
    """The value of a note, whatever its type."""
    kind = stat.WhichOneof("value")
    value = getattr(stat, kind)
    return plane.stat_metadata[value].name if kind == "ref_value" else value


def _time_inside(events: list[Any]) -> list[int]:
    """The time in the direct children of each event, in order of their begins."""
    inside = [0] * len(events)
    open_events: list[tuple[int, int]] = []
    for number, event in enumerate(events):
        while open_events and open_events[-1][1] <= event.offset_ps:
            open_events.pop()
        if open_events:
            inside[open_events[-1][0]] += event.duration_ps
        open_events.append((number, event.offset_ps + event.duration_ps))
    return inside


def memory_at_peak(space: Any) -> dict[str, int]:
    """Bytes of activations and gradients at the moment when both together were largest.

    The forward pass allocates activations, the backward pass gradients (of weights and
    activations). Allocations of the update become weights and optimiser state, whose sizes are
    known anyway.
    """
    live: dict[int, tuple[int, str]] = {}
    total = most = 0
    peak: dict[str, int] = {}
    for _, allocated, address, size, node in sorted(_allocations(space), key=lambda item: item[0]):
        if allocated and phase_of(node, _operation_of(node)) in PURPOSES:
            live[address] = (size, node)
            total += size
        elif address in live:
            total -= live.pop(address)[0]
        if total > most:
            most, peak = total, _by_purpose(live)
    return peak


PURPOSES = {"forward": "activations", "backward": "gradients"}


def _operation_of(node: str) -> str:
    """`AddN` of nodes named AddN, AddN_1, ...: allocations are recorded with their node only."""
    return node.rpartition("/")[2].partition("_")[0]


def _by_purpose(live: dict[int, tuple[int, str]]) -> dict[str, int]:
    found = dict.fromkeys(PURPOSES.values(), 0)
    for size, node in live.values():
        purpose = PURPOSES[phase_of(node, _operation_of(node))]
        found[purpose] += size
    return found


def _allocations(space: Any) -> Iterator[tuple[int, bool, int, int, str]]:
    """Time in ps, whether memory was taken (else given back), address, bytes and node."""
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                if name in ("MemoryAllocation", "MemoryDeallocation"):
                    notes = {plane.stat_metadata[s.metadata_id].name: stat_value(plane, s) for s in event.stats}
                    moment = line.timestamp_ns * 1000 + event.offset_ps
                    size, address = int(notes.get("allocation_bytes", 0)), int(notes.get("addr", 0))
                    yield moment, name == "MemoryAllocation", address, size, str(notes.get("tf_op", ""))
