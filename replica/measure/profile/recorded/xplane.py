"""The reader of recordings of TensorFlow's profiler (XSpace), with the work of XLA's instructions.

On CPUs, threads of the executor are lines of the host's plane, with events named `node:Operation`.
On GPUs, kernels in a device's plane name their node.
"""

from collections.abc import Callable, Iterator, Mapping
from math import isfinite, nan, prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from aiperf.errors import EnvironmentNotReadyError
from replica.measure.profile.recorded.phases import FETCH, STEP, UNCOUNTED, phase_of
from replica.measure.profile.recorded.recording import Allocation, Event, Recording, Span

# Floating-point operations of instructions of XLA programs, by XLA's own rules.
#
# The formulas are those of XLA's `HloCostAnalysis` (openxla/xla,
# xla/service/hlo_cost_analysis.cc): two operations for each multiply-accumulate of a convolution
# or a matrix product, those with padding left out; one for each element of an elementwise result
# or of a reduced array. Other than there, transcendental functions count as one operation, and
# integers do not count.

FLOATING = frozenset((10, 11, 12, 16, *range(19, 26), 28, 29))
"""Floating-point types in XLA's `PrimitiveType`: F16, F32, F64, BF16, and those of 8 bits."""

ELEMENTWISE = frozenset((
    "add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "clamp", "negate", "abs", "sign",
    "compare", "select", "power", "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "tanh",
    "sqrt", "rsqrt", "cbrt", "sine", "cosine", "tan", "erf", "atan2", "floor", "ceil", "round-nearest-even",
))  # fmt: skip

LIBRARY_CALL = "custom-call"


def work_of(instruction: Any, by_id: Mapping[int, Any]) -> float | None:
    """Count the operations of an instruction without those of computations that it calls.

    `by_id` has its operands. None for a call of a library, which XLA does not describe.
    """
    if instruction.opcode == LIBRARY_CALL:
        return None
    operands = [by_id[number] for number in instruction.operand_ids]
    # Comparisons give booleans, selections take one first: the last operand has the type.
    typed = operands[-1] if operands else instruction
    if typed.shape.element_type not in FLOATING:
        return 0.0
    rule = _RULES.get(instruction.opcode)
    if rule is not None:
        return float(rule(instruction, operands))
    return float(_elements(instruction)) if instruction.opcode in ELEMENTWISE else 0.0


def _elements(instruction: Any) -> int:
    return int(prod(instruction.shape.dimensions))


def _convolution(instruction: Any, operands: list[Any]) -> int:
    """Count multiply-accumulates whose input is neither padding nor a hole of a dilation."""
    images, kernel = (list(operand.shape.dimensions) for operand in operands[:2])
    result = list(instruction.shape.dimensions)
    axes = instruction.convolution_dimension_numbers
    positions = 1
    for number, window in enumerate(instruction.window.dimensions):
        outputs = np.arange(result[axes.output_spatial_dimensions[number]])[:, None] * window.stride
        taps = np.arange(window.size)[None, :] * max(window.window_dilation, 1)
        places = outputs - window.padding_low + taps
        dilation = max(window.base_dilation, 1)
        size = images[axes.input_spatial_dimensions[number]]
        positions *= int(np.sum((places >= 0) & (places % dilation == 0) & (places // dilation < size)))
    filters = kernel[axes.kernel_output_feature_dimension] * kernel[axes.kernel_input_feature_dimension]
    groups = max(instruction.batch_group_count, 1)
    return int(2 * positions * filters * images[axes.input_batch_dimension] // groups)


def _dot(instruction: Any, operands: list[Any]) -> int:
    contracted = instruction.dot_dimension_numbers.lhs_contracting_dimensions
    return 2 * _elements(instruction) * int(prod(operands[0].shape.dimensions[axis] for axis in contracted))


def _window(instruction: Any, operands: list[Any]) -> int:
    return _elements(instruction) * int(prod(window.size for window in instruction.window.dimensions))


_RULES: Mapping[str, Callable[[Any, list[Any]], int]] = {
    "convolution": _convolution,
    "dot": _dot,
    "reduce": lambda instruction, operands: _elements(operands[0]),
    "reduce-window": _window,
    "select-and-scatter": lambda instruction, operands: (
        _elements(operands[1]) * (1 + prod(window.size for window in instruction.window.dimensions))
    ),
    "scatter": lambda instruction, operands: _elements(operands[-1]),
}


# Instructions of XLA programs, as a recording of TensorFlow's profiler describes them.

HEAVY = frozenset(("convolution", "dot"))

SILENT = frozenset(("parameter", "constant", "bitcast", "tuple", "get-tuple-element", "broadcast", "copy"))
"""Instructions that do not give a fusion its name if there are others in it."""


Work = tuple[tuple[str, float | None], ...]
"""Floating-point operations by the node that they come from; None if they are not known."""


class Instruction(NamedTuple):
    """The node that an instruction comes from, and its name by its parts."""

    node: str
    operation: str
    work: Work = ()


Programs = Mapping[tuple[str, str], Instruction]
"""Instructions by the names of program and instruction."""


def read_programs(space: Any) -> Programs:
    """Read all instructions of the programs that ran; none without XLA."""
    from tensorflow.compiler.xla.service import hlo_pb2  # noqa: PLC0415

    found: dict[tuple[str, str], Instruction] = {}
    for plane in space.planes:
        if plane.name == "/host:metadata":
            for metadata in plane.event_metadata.values():
                for stat in metadata.stats:
                    program = hlo_pb2.HloProto()
                    program.ParseFromString(stat.bytes_value)
                    found.update(instructions(program.hlo_module))
    return found


def instructions(module: Any) -> dict[tuple[str, str], Instruction]:
    """Read all instructions of one program, by its name and theirs."""
    computations = {computation.id: computation for computation in module.computations}
    found: dict[tuple[str, str], Instruction] = {}
    for computation in module.computations:
        nodes = _nodes(computation, computations)
        for each in computation.instructions:
            operation = _operation(each, computations)
            found[module.name, each.name] = Instruction(
                nodes[each.id], operation, _work(each, computation, computations)
            )
    return found


def _work(instruction: Any, computation: Any, computations: Mapping[int, Any], node: str = "") -> Work:
    """Count the operations of an instruction, or of all parts of a fusion, each of its own node."""
    own = instruction.metadata.op_name or node
    if instruction.opcode != "fusion":
        by_id = {each.id: each for each in computation.instructions}
        work = work_of(instruction, by_id)
        return ((own, work),) if work != 0 else ()
    bodies = [computations[number] for number in instruction.called_computation_ids]
    return tuple(pair for body in bodies for part in body.instructions for pair in _work(part, body, computations, own))


def _parts(instruction: Any, computations: Mapping[int, Any]) -> list[Any]:
    return [part for number in instruction.called_computation_ids for part in computations[number].instructions]


def _nodes(computation: Any, computations: Mapping[int, Any]) -> dict[int, str]:
    """Find each instruction's node: its own, or one of its parts', or that of its reader.

    In a fusion, the node of a convolution or a matrix product in it comes first: it is what takes
    the time. XLA adds copies and transpositions for the sake of the instruction that reads them.
    """
    found: dict[int, str] = {}
    # Instructions come after their operands: in reverse, readers are known first.
    for each in reversed(computation.instructions):
        parts = [part for part in _parts(each, computations) if part.metadata.op_name]
        heavy = [part.metadata.op_name for part in parts if part.opcode in HEAVY and each.opcode == "fusion"]
        named = [*heavy, each.metadata.op_name, *(part.metadata.op_name for part in reversed(parts))]
        own = next((str(name) for name in named if name), "") or found.get(each.id, "")
        found[each.id] = own
        for operand in each.operand_ids:
            found[operand] = own or found.get(operand, "")
    return found


def _operation(instruction: Any, computations: Mapping[int, Any]) -> str:
    if instruction.opcode != "fusion":
        return str(instruction.opcode)
    parts = dict.fromkeys(part.opcode for part in _parts(instruction, computations))
    names = [name for name in parts if name not in SILENT] or [name for name in parts if name != "parameter"]
    return f"fusion of {', '.join(names)}"


PICOSECONDS, NANOSECONDS = 1e-12, 1e-9

SPANS = frozenset((UNCOUNTED, STEP, FETCH))

ONEDNN, TENSORFLOW, XLA = "oneDNN", "TensorFlow", "XLA"

KERNELS = {
    "cudnn": "cuDNN",
    "cublas": "cuBLAS",
    "gemm": "cuBLAS",
    "cutlass": "CUTLASS",
    "nccl": "NCCL",
    "fusion": XLA,
    "Eigen": "Eigen",
}
"""Libraries by a part of the name of their GPU kernels; the first that fits counts."""

UNSAID = "unknown"

ASYNC_START, ASYNC_DONE = "ExecutorState::ProcessAsync::Start", "ExecutorState::ProcessAsync::Done"

EXCHANGES = "exchanges"
"""Lane of operations that exchange data with other ranks."""


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
    """Read operations of the accelerators, or of the CPU if there are none; spans; allocations."""
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
    """Strip the name of a library from the operation that it computes."""
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
    """Read exchanges with other ranks, from start to end: they run outside the executor.

    Each start has the name of its node; ends come in the same order for one node.
    """
    begun: dict[str, list[tuple[float, str]]] = {}
    marks = [
        (_begin_s(line, event), plane.event_metadata[event.metadata_id].name, _notes(plane, event))
        for line in plane.lines
        for event in line.events
        if plane.event_metadata[event.metadata_id].name in (ASYNC_START, ASYNC_DONE)
    ]
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
    """The value, or None if nothing is free: the profiler divides by the free memory."""
    return value if isfinite(value) else None


def _notes(plane: Any, event: Any) -> Mapping[str, Any]:
    """The notes that the profiler keeps with an event and with its name."""
    stats = [*plane.event_metadata[event.metadata_id].stats, *event.stats]
    return {plane.stat_metadata[stat.metadata_id].name: _value(plane, stat) for stat in stats}


def _value(plane: Any, stat: Any) -> Any:
    """The value of a note, whatever its type."""
    kind = stat.WhichOneof("value")
    value = getattr(stat, kind)
    return plane.stat_metadata[value].name if kind == "ref_value" else value
