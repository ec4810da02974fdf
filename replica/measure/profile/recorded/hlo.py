"""Instructions of XLA programs, as a recording of TensorFlow's profiler describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from replica.measure.profile.recorded.hlo_work import work_of

HEAVY = frozenset(("convolution", "dot"))

SILENT = frozenset(("parameter", "constant", "bitcast", "tuple", "get-tuple-element", "broadcast", "copy"))
"""Instructions that do not name a fusion, if there are others in it."""


Work = tuple[tuple[str, float | None], ...]
"""Floating-point operations by the node that they come from; None if they are not known."""


class Instruction(NamedTuple):
    """The node that an instruction comes from, and its name by its parts."""

    node: str
    operation: str
    work: Work = ()


Programs = Mapping[tuple[str, str], Instruction]
"""By the names of program and instruction."""


def read_programs(space: Any) -> Programs:
    """All instructions of the programs that ran; none without XLA."""
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
    """All instructions of one program, by its name and theirs."""
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
    """Operations of an instruction, or of all parts of a fusion, each of its own node."""
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
    """Each instruction's node: its own, or one of its parts', or that of its reader.

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
