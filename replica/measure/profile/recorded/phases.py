"""The phases of an iteration: the phase of an operation, and the wall time of each phase."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from replica.measure.profile.recorded.recording import Event, Recording, Segment, Span, segments

BACKWARD = "gradient_tape"
"""Part of the paths of TensorFlow's nodes of the backward pass."""

ADD_GRADIENTS = re.compile(r"AddN(_\d+)?")
"""Nodes and operations that sum the gradients of a tensor that several layers read.

No other operation of the backward pass lacks `BACKWARD` in its path.
"""

UPDATE = re.compile(r"(sgd|loss_scale|global_norm)(_\d+)?")
"""Parts of the paths of nodes of the update: names of optimisers, and the norm of all gradients."""

UPDATING = re.compile(r"(Assign|ResourceApply)\w*")
INPUT = re.compile(r"\w*(Dataset|Iterator)\w*|Decode\w+|\w*Jpeg\w*|ReadFile|Parse\w*Example\w*")
COMMUNICATION = re.compile(
    r"(Horovod|Collective|Nccl)\w*|\w*AllReduce\w*|"
    r"(all-reduce|all-gather|all-to-all|reduce-scatter|collective-\w+)[a-z-]*"
)
"""Operations by their whole names, as parts of them occur in others: `Batch` in FusedBatchNormV3.
Those of an exchange have the names of TensorFlow, Horovod or XLA."""

JAX, JAX_FORWARD, JAX_BACKWARD = "jit(", "jvp(", "transpose("
"""Names of the transformations by which JAX made an instruction; one that the gradient did not make
is of the update."""

UNCOUNTED, STEP, FETCH = "uncounted", "train", "input"
"""Names of the marked spans; the first step under the profiler is not counted."""

HOST = "host"
"""Phase of a step in which no operation ran: Python, dispatching and waiting."""

WAITING = ("input", "communication")
"""Phases in which the step waits for others than its own operations."""

PHASES = ("input", "forward", "backward", "communication", "update", HOST)


def phase_of(node: str, operation: str) -> str:
    """The phase that a node belongs to: input, forward, backward, communication or update."""
    # A recording has no field for the phase: the names that Keras and TensorFlow give are all there
    # is. Backward comes before the update, because gradients carry the name of their layer, which
    # may contain a word of the update.
    if COMMUNICATION.fullmatch(operation):
        return "communication"
    if node.startswith(JAX):
        return "backward" if JAX_BACKWARD in node else "forward" if JAX_FORWARD in node else "update"
    path = node.split("/")
    if BACKWARD in path or ADD_GRADIENTS.fullmatch(operation) or ADD_GRADIENTS.fullmatch(path[-1]):
        return "backward"
    if UPDATING.fullmatch(operation) or any(map(UPDATE.fullmatch, path)):
        return "update"
    return "input" if INPUT.fullmatch(operation) else "forward"


@dataclass(frozen=True, slots=True)
class Block:
    """A run of operations of one phase on one lane."""

    lane: str
    phase: str
    operation: str
    """Name of the longest of them."""
    start_s: float
    """Seconds from the beginning of the step."""
    end_s: float


def wall_times(step: Span, recording: Recording) -> dict[str, float]:
    """Find the seconds of a step by phase; they sum to the step.

    An instant belongs to the phases of the operations that run in it, in equal parts. If none runs,
    it is `input` while the step fetches its batch, `communication` during an exchange, which
    computing may hide, and else `host`. Work of the input pipeline ahead of the step is not the
    step's.
    """
    waits = _waits(recording)
    edges: list[tuple[float, int, str]] = []
    for each in segments(recording.events):
        phase = event_phase(each.event)
        start, end = max(each.start_s, step.start_s), min(each.end_s, step.end_s)
        if end > start and phase not in WAITING:
            edges += [(start, 1, phase), (end, -1, phase)]
    found = dict.fromkeys(PHASES, 0.0)
    running = dict.fromkeys(PHASES, 0)
    reached = step.start_s
    # A sweep over starts and ends: between two of them the set of running operations is constant.
    for moment, change, phase in sorted(edges):
        _charge(found, running, reached, moment, waits)
        running[phase] += change
        reached = moment
    _charge(found, running, reached, step.end_s, waits)
    return found


def _waits(recording: Recording) -> list[tuple[str, float, float]]:
    """Find the times in which the step may wait for its batch or for others, without overlaps."""
    fetches = [("input", span.start_s, span.end_s) for span in recording.named(FETCH)]
    exchanges = [
        ("communication", event.start_s, event.end_s)
        for event in recording.events
        if event_phase(event) == "communication"
    ]
    found: list[tuple[str, float, float]] = []
    for phase, start, end in sorted([*fetches, *exchanges], key=lambda wait: wait[1]):
        # Cut at the end of the wait before: no instant may count twice.
        begin = max(start, found[-1][2]) if found else start
        if end > begin:
            found.append((phase, begin, end))
    return found


def _charge(
    found: dict[str, float], running: dict[str, int], start: float, end: float, waits: list[tuple[str, float, float]]
) -> None:
    active = sum(running.values())
    # Operations of several lanes run at the same time: each has an equal part of the instant, so
    # that the phases sum to the step.
    for phase, count in running.items() if active else ():
        found[phase] += (end - start) * count / active
    if active:
        return
    left = end - start
    for phase, begin, finish in waits:
        shared = min(left, max(0.0, min(end, finish) - max(start, begin)))
        found[phase] += shared
        left -= shared
    found[HOST] += left


def event_phase(event: Event) -> str:
    """The phase of an event."""
    return event.phase or phase_of(event.node, event.operation)


def blocks(step: Span, recording: Recording, gap_share: float = 0.002) -> list[Block]:
    """Divide the step into blocks for a timeline.

    Segments of one phase on one lane are joined over gaps of less than this share of the step.
    """
    gap = gap_share * step.seconds
    found: list[Block] = []
    for group in _joined(segments(recording.events), gap):
        longest = max(group, key=lambda each: each.seconds)
        first, last = group[0], group[-1]
        found.append(
            Block(
                longest.event.lane,
                event_phase(longest.event),
                longest.event.operation,
                first.start_s - step.start_s,
                last.end_s - step.start_s,
            )
        )
    waits = [
        Block("batch", "input", "fetch", span.start_s - step.start_s, span.end_s - step.start_s)
        for span in recording.named(FETCH)
    ]
    return sorted([*found, *waits], key=lambda block: (block.lane, block.start_s))


def _joined(parts: Iterable[Segment], gap: float) -> list[list[Segment]]:
    groups: list[list[Segment]] = []
    for part in sorted(parts, key=lambda each: (each.event.lane, each.start_s)):
        last = groups[-1][-1] if groups else None
        joins = (
            last is not None
            and last.event.lane == part.event.lane
            and event_phase(last.event) == event_phase(part.event)
            and part.start_s - last.end_s <= gap
        )
        if joins:
            groups[-1].append(part)
        else:
            groups.append([part])
    return groups
