"""The memory of a training step at its peak, by purpose.

The allocator of TensorFlow records what it hands out and the total in use. What was there before
the recording is known by its size alone: weights, optimiser state, the batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from replica.measure.profile.recorded.phases import phase_of
from replica.measure.profile.recorded.recording import Allocation

WEIGHTS, STATE, BATCH = "weights", "optimiser state", "input"
PURPOSES = {"forward": "activations", "backward": "gradients", "communication": "gradients", "input": "input queue"}
"""Outputs of operations by phase; those of the update become weights and optimiser state."""

TEMPORARY, PERSISTENT, NEW_VALUES = "temporaries", "persistent", "values of the update"
PROGRAM = "buffers of XLA programs"
"""Purpose of the one block that a program compiled by XLA takes for everything in it."""

ROUNDING, UNEXPLAINED = "rounding of the allocator", "unexplained"


@dataclass(frozen=True, slots=True)
class AllocatorTotals:
    """The totals of the allocator with the most memory in use."""

    name: str
    peak_bytes: int
    """Most bytes in use in the recorded steps."""
    lifetime_peak_bytes: int
    """Most bytes in use since the process began, with building and the first step."""
    fragmentation: float | None
    """Share of the free memory outside its largest piece, at the peak."""
    explained: float
    """Share of the peak that has a purpose."""


def memory_at_peak(
    allocations: Sequence[Allocation], known: Mapping[str, int], steps: Sequence[float]
) -> tuple[dict[str, int], AllocatorTotals | None]:
    """Find the bytes by purpose at the peak, and the totals; they sum to the allocator's peak.

    `known` are the bytes of weights, optimiser state and batch; `steps` the moments at which steps
    began, the first of which may come after the recording did. Without allocations since then the
    bytes are those of `known`.
    """
    own = _of_main_allocator(allocations)
    peak = max((each for each in own if each.moment_s >= steps[0]), key=lambda each: each.in_use, default=None)
    if peak is None:
        return dict(known), None
    began = max((moment for moment in steps if moment <= peak.moment_s), default=float("-inf"))
    found = _live(own, peak, began)
    found[UNEXPLAINED] = peak.in_use - sum(found.values()) - sum(known.values())
    totals = AllocatorTotals(
        name=peak.allocator,
        peak_bytes=peak.in_use,
        lifetime_peak_bytes=max(each.lifetime_peak for each in own),
        fragmentation=peak.fragmentation,
        explained=1 - abs(found[UNEXPLAINED]) / peak.in_use,
    )
    return {**known, **found}, totals


def _of_main_allocator(allocations: Sequence[Allocation]) -> list[Allocation]:
    largest: dict[str, int] = {}
    for each in allocations:
        largest[each.allocator] = max(largest.get(each.allocator, 0), each.in_use)
    main = max(largest, key=lambda name: largest[name]) if largest else ""
    return sorted((each for each in allocations if each.allocator == main), key=lambda each: each.moment_s)


def _live(own: Sequence[Allocation], peak: Allocation, began: float) -> dict[str, int]:
    """Find the bytes that were taken in the step of the peak and are live at it, by purpose.

    Values of the update take the place of others, whose memory is given back: those are variables
    of known size, and only what the update holds beyond them counts. Those of earlier steps are
    variables now; only how much larger their chunks are is new.
    """
    live: dict[int, Allocation] = {}
    replaced = 0
    for each in own:
        if each.taken:
            live[each.address] = each
        else:
            taken = live.pop(each.address, None)
            if each.moment_s >= began and (taken is None or taken.moment_s < began):
                replaced += each.requested
        if each is peak:
            break
    found = dict.fromkeys((*PURPOSES.values(), TEMPORARY, PERSISTENT, PROGRAM, NEW_VALUES, ROUNDING), 0)
    for each in live.values():
        purpose = _purpose(each)
        found[ROUNDING] += each.size - each.requested
        if purpose != NEW_VALUES or each.moment_s >= began:
            found[purpose] += each.requested
    found[NEW_VALUES] = max(0, found[NEW_VALUES] - replaced)
    return found


def _purpose(allocation: Allocation) -> str:
    if allocation.node.startswith("__inference"):
        return PROGRAM
    phase = allocation.phase or phase_of(allocation.node, _operation_of(allocation.node))
    if phase not in PURPOSES:
        return NEW_VALUES  # of any region: a variable that is read takes new memory for its next value
    if allocation.region == "temp":
        return TEMPORARY
    return PERSISTENT if allocation.region == "persist" else PURPOSES[phase]


def _operation_of(node: str) -> str:
    """The operation of a node's name, `AddN` of AddN_1: allocations are recorded by node alone."""
    return node.rpartition("/")[2].partition("_")[0]
