"""Limits of growth for architectures, derived from the configuration of a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from aiperf.network.architecture import Architecture
from aiperf.network.operations import totals

TRAINED_COPIES = 3
"""Copies of the parameters in a training: weights, gradients and momentum."""

ACTIVATION_BYTES: Mapping[str, int] = {"float32": 4, "mixed_bfloat16": 2, "mixed_float16": 2}
"""Bytes of an output that is kept for the backward pass, by arithmetic of the layers."""

WEIGHT_BYTES = 4
"""Bytes of a weight, a gradient or a momentum: float32, also in mixed precision."""

USABLE_SHARE = 0.85
"""Share of an accelerator's memory that can be planned with: allocators round up and leave gaps."""

RESERVED_BYTES = 2 * 10**9
"""Bytes of an accelerator for a context, libraries' workspaces, and the next trial's warm ranks."""


SHARER_BYTES = 4 * 10**9
"""Bytes of an accelerator, beside a training's own, that each replica takes which shares it: the
contexts of two processes, and what warm ranks may take."""


def usable_memory(total_bytes: int, sharers: int = 1) -> int:
    """Bytes of an accelerator's memory that one of `sharers` replicas may plan its trainings with.

    It is at least half of the replica's part: on a small accelerator the reserve would be most.
    """
    own, reserved = total_bytes // sharers, RESERVED_BYTES if sharers == 1 else SHARER_BYTES
    return max(int(USABLE_SHARE * own) - reserved, own // 2)


def rank_memory(total_bytes: int, sharers: int) -> int:
    """Bytes that a rank of one of several `sharers` may take: what its warm ranks and contexts
    leave of the replica's part, and at least what trainings are planned with."""
    return max(total_bytes // sharers - SHARER_BYTES, usable_memory(total_bytes, sharers))


@dataclass(frozen=True, slots=True)
class Size:
    """Parameters, operations per trained image, and layers with weights of an architecture."""

    parameters: int
    operations: int
    depth: int


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest numbers of parameters, operations per trained image, layers with weights, and
    bytes of memory for a batch."""

    parameters: int
    operations: int
    depth: int
    memory_bytes: int | None
    batch_size: int
    activation_bytes: int

    def refusal(self, architecture: Architecture, known: Size | None = None) -> str | None:
        """The reason why an architecture is too large, or None. `known` is its size, if counted."""
        size = known if known is not None else _size_of(architecture)
        if size.parameters > self.parameters:
            return f"{size.parameters} parameters; the limit is {self.parameters}"
        if size.operations > self.operations:
            return f"{size.operations} operations an image; the limit is {self.operations}"
        if size.depth > self.depth:
            return f"{size.depth} layers with weights; the limit is {self.depth}"
        if self.memory_bytes is None:
            return None
        needed = _memory(architecture, size.parameters, self.batch_size, self.activation_bytes)
        if needed > self.memory_bytes:
            return f"about {needed} bytes to train with batch {self.batch_size}; the limit is {self.memory_bytes}"
        return None


def _size_of(architecture: Architecture) -> Size:
    operations, parameters = totals(architecture)
    return Size(parameters, operations.total, architecture.depth)


def growth_limits(
    initial: Architecture, growth: float, memory_bytes: int | None, batch_size: int, activation_bytes: int
) -> Limits:
    """Limits of `growth` times the initial architecture, and of the memory of an accelerator."""
    size = _size_of(initial)
    return Limits(
        parameters=int(size.parameters * growth),
        operations=int(size.operations * growth),
        depth=int(size.depth * growth),
        memory_bytes=memory_bytes,
        batch_size=batch_size,
        activation_bytes=activation_bytes,
    )


def training_memory(architecture: Architecture, batch_size: int, activation_bytes: int) -> int:
    """Estimated bytes of a training: `TRAINED_COPIES` of the weights, and the kept outputs."""
    return _memory(architecture, totals(architecture)[1], batch_size, activation_bytes)


def _memory(architecture: Architecture, parameters: int, batch_size: int, activation_bytes: int) -> int:
    kept = 0
    for node in architecture.nodes:
        # An estimate of outputs alone: workspaces of libraries are in `RESERVED_BYTES`.
        if node.layer.kept_for_backward:
            kept += prod(architecture.shapes[node.name])
    return TRAINED_COPIES * WEIGHT_BYTES * parameters + batch_size * activation_bytes * kept
