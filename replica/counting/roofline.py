"""The roofline of a network: the rate that bounds each layer on a measured device.

Williams et al. 2009: a layer of intensity I operations a byte runs at no more than min(P, I x B).
P and B are the best matrix product and the triad of `aiperf micro`. A layer moves its inputs, its
output and its weights once in every pass; a training step has one forward pass, and one pass for
each gradient of a layer with weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, TypeAdapter

from aiperf.errors import UsageError
from aiperf.network.operations import KERNEL_KINDS, LayerCount, NetworkCount
from aiperf.outside.reading import read_outside

ITEM_SIZES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of an element by precision."""

Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Row(BaseModel):
    operator: str
    kind: str
    stack: str
    precision: Literal["float32", "bfloat16", "float16"]
    ops_per_s: Rate
    bytes_per_s: Rate


@dataclass(frozen=True, slots=True)
class Device:
    """The measured ceilings of a device."""

    ops_per_s: float
    bytes_per_s: float
    precision: str


@dataclass(frozen=True, slots=True)
class Bound:
    """The ceiling of a layer, or of several together."""

    intensity: float
    """Operations a byte."""
    ceiling_ops: float | None
    """Operations per second; None if no device was measured."""
    bound: str
    """`compute`, `memory`, or `not known`."""


def read_device(path: Path) -> Device:
    """The ceilings in the JSON of `aiperf micro`: of several stacks, the best.

    Raises UsageError if the file is not such a result, or has no ceilings of one precision.
    """
    rows = read_outside(path, _rows, error=UsageError, what="a result of 'aiperf micro --format json'")
    ceilings = [row for row in rows if row.kind == "ceiling"]
    precisions = {row.precision for row in ceilings}
    products = [row.ops_per_s for row in ceilings if row.operator == "gemm"]
    streams = [row.bytes_per_s for row in ceilings if row.operator == "triad"]
    if not products or not streams or len(precisions) != 1:
        raise UsageError(f"{path}: needs the ceilings gemm and triad of one precision")
    return Device(max(products), max(streams), precisions.pop())


def _rows(data: bytes) -> list[_Row]:
    return TypeAdapter(list[_Row]).validate_python(json.loads(data))


def bound_of(layers: Iterable[LayerCount], device: Device | None) -> Bound | None:
    """The ceiling of layers that run one after another; None if they count no operations.

    Without a device the intensity is that of float32.
    """
    item_size = ITEM_SIZES[device.precision if device else "float32"]
    operations = moved = 0
    computing = moving = 0.0
    for layer in layers:
        for work, elements in _passes(layer):
            operations, moved = operations + work, moved + elements * item_size
            if device is not None:
                in_compute, in_memory = work / device.ops_per_s, elements * item_size / device.bytes_per_s
                if in_compute >= in_memory:
                    computing += in_compute
                else:
                    moving += in_memory
    if not operations:
        return None
    if device is None:
        return Bound(operations / moved, None, "not known")
    bound = "compute" if computing >= moving else "memory"
    return Bound(operations / moved, operations / (computing + moving), bound)


def _passes(layer: LayerCount) -> list[tuple[int, int]]:
    """Operations and moved elements of the passes of a layer, if it counts any."""
    forward, backward = layer.operations.forward, layer.operations.backward
    if not forward:
        return []
    if layer.kind not in KERNEL_KINDS:
        return [(forward + backward, layer.elements)]
    # The gradients have as many operations as the forward pass, or one of them is not needed.
    gradients = 2 if backward >= 2 * forward else 1
    return [(forward, layer.elements), (backward, gradients * layer.elements)]


def roofline_rate(count: NetworkCount, device: Device) -> float | None:
    """Images per second that a device could train at its ceilings; None for an empty network."""
    whole = bound_of(count.layers, device)
    if whole is None or whole.ceiling_ops is None:
        return None
    return whole.ceiling_ops / count.operations.total
