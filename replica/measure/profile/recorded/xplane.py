"""Recordings of TensorFlow's profiler (XSpace), read into plain values.

On CPUs, threads of the executor are lines of the host's plane, with events named `node:Operation`.
On GPUs, kernels in a device's plane name their node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite, nan
from pathlib import Path
from typing import Any

from aiperf.errors import EnvironmentNotReadyError
from replica.measure.profile.recorded.hlo import Instruction, Programs, read_programs
from replica.measure.profile.recorded.phases import FETCH, STEP, UNCOUNTED, phase_of
from replica.measure.profile.recorded.recording import Allocation, Event, Recording, Span

PICOSECONDS, NANOSECONDS = 1e-12, 1e-9

SPANS = frozenset((UNCOUNTED, STEP, FETCH))

ONEDNN, TENSORFLOW, XLA = "oneDNN", "TensorFlow", "XLA"

KERNELS = {
    "cudnn": "cuDNN", "cublas": "cuBLAS", "gemm": "cuBLAS", "cutlass": "CUTLASS", "nccl": "NCCL",
    "fusion": XLA, "Eigen": "Eigen",
}  # fmt: skip
"""Libraries by a part of the name of a GPU kernel, the first that fits."""

UNSAID = "unknown"

ASYNC_START, ASYNC_DONE = "ExecutorState::ProcessAsync::Start", "ExecutorState::ProcessAsync::Done"

EXCHANGES = "exchanges"
"""The lane of operations that exchange data with other ranks."""


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


def read_recording(space: Any) -> Recording:
    """Operations of the accelerators, or of the CPU if there are none; spans; allocations."""
    devices = [plane for plane in space.planes if plane.name.startswith("/device:GPU")]
    host = [plane for plane in space.planes if plane.name == "/host:CPU"]
    programs = read_programs(space)
    events = [
        event
        for plane in devices or host
        for line in plane.lines
        for event in _events(plane, line, programs, device=bool(devices))
    ]
    events += [event for plane in host for event in _exchanges(plane)]
    spans = [span for plane in host for line in plane.lines for span in _spans(plane, line)]
    allocations = [each for plane in space.planes for line in plane.lines for each in _allocations(plane, line)]
    return Recording(tuple(events), tuple(spans), tuple(allocations))


def plain(operation: str) -> str:
    """The name of an operation without that of the library that computes it."""
    for prefix in ("_MklNative", "_Mkl"):
        operation = operation.removeprefix(prefix)
    return operation


def _begin_s(line: Any, event: Any) -> float:
    return float(line.timestamp_ns * NANOSECONDS + event.offset_ps * PICOSECONDS)


def _events(plane: Any, line: Any, programs: Programs, device: bool) -> Iterator[Event]:
    for event in line.events:
        name = plane.event_metadata[event.metadata_id].name
        start = _begin_s(line, event)
        end = start + event.duration_ps * PICOSECONDS
        notes = _notes(plane, event)
        lane = line.name or line.display_name or str(line.id)
        if "hlo_op" in notes:
            own = Instruction(str(notes.get("tf_op", "")), str(notes["hlo_op"]))
            known = programs.get((str(notes.get("hlo_module", "")), own.operation), own)
            yield Event(start, end, known.node, known.operation, lane, XLA, work=known.work)
            continue
        named = str(notes.get("tf_op", "")) if device else name
        node, colon, operation = named.rpartition(":")
        if colon and operation.lstrip("_").isalnum() and not operation[:1].isdigit() and "::" not in named:
            yield Event(start, end, node, plain(operation), lane, _library(name, operation, device))


def _exchanges(plane: Any) -> Iterator[Event]:
    """Exchanges with other ranks, which run outside the executor: from their start to their end.

    Each start has the name of its node; ends come in the same order for one node.
    """
    begun: dict[str, list[tuple[float, str]]] = {}
    marks = [(_begin_s(line, event), plane.event_metadata[event.metadata_id].name, _notes(plane, event))
             for line in plane.lines for event in line.events
             if plane.event_metadata[event.metadata_id].name in (ASYNC_START, ASYNC_DONE)]  # fmt: skip
    for moment, name, notes in sorted(marks, key=lambda mark: mark[0]):
        node = str(notes.get("name", ""))
        kind = str(notes.get("kernel_type", ""))
        if name == ASYNC_START:
            begun.setdefault(node, []).append((moment, kind))
        elif begun.get(node):
            start, operation = begun[node].pop(0)
            if phase_of(node, operation) == "communication":
                yield Event(start, moment, node, operation, EXCHANGES, "Horovod", "communication")


def _library(name: str, operation: str, device: bool) -> str:
    if not device:
        return ONEDNN if operation.startswith("_Mkl") else TENSORFLOW
    return next((library for part, library in KERNELS.items() if part.lower() in name.lower()), UNSAID)


def _spans(plane: Any, line: Any) -> Iterator[Span]:
    for event in line.events:
        name = plane.event_metadata[event.metadata_id].name
        if name in SPANS:
            start = _begin_s(line, event)
            yield Span(name, start, start + event.duration_ps * PICOSECONDS)


def _allocations(plane: Any, line: Any) -> Iterator[Allocation]:
    for event in line.events:
        name = plane.event_metadata[event.metadata_id].name
        if name in ("MemoryAllocation", "MemoryDeallocation"):
            notes = _notes(plane, event)
            yield Allocation(
                moment_s=_begin_s(line, event),
                taken=name == "MemoryAllocation",
                address=int(notes.get("addr", 0)),
                size=int(notes.get("allocation_bytes", 0)),
                requested=int(notes.get("requested_bytes", 0)),
                node=str(notes.get("tf_op", "")),
                region=str(notes.get("region_type", "")),
                allocator=str(notes.get("allocator_name", "")),
                in_use=int(notes.get("bytes_allocated", 0)),
                lifetime_peak=int(notes.get("peak_bytes_in_use", 0)),
                fragmentation=_finite(float(notes.get("fragmentation", nan))),
            )


def _finite(value: float) -> float | None:
    """The value, or None where nothing is free: the profiler divides by it."""
    return value if isfinite(value) else None


def _notes(plane: Any, event: Any) -> Mapping[str, Any]:
    """What the profiler keeps with an event and with its name."""
    stats = [*plane.event_metadata[event.metadata_id].stats, *event.stats]
    return {plane.stat_metadata[stat.metadata_id].name: _value(plane, stat) for stat in stats}


def _value(plane: Any, stat: Any) -> Any:
    """The value of a note, whatever its type."""
    kind = stat.WhichOneof("value")
    value = getattr(stat, kind)
    return plane.stat_metadata[value].name if kind == "ref_value" else value
