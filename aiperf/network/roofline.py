"""The roofline of a network: the rate that bounds each layer on a measured device.

Williams et al. 2009: a layer of intensity I operations a byte runs at no more than min(P, I x B).
P and B are the best matrix product and the triad of `aiperf micro`. A layer moves its inputs and
its output once in every pass of an image, and its weights once in every pass of a batch; a training
step has one forward pass, and one pass for each gradient of a layer with weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from aiperf.network.operations import KERNEL_KINDS, LayerCount, NetworkCount

ITEM_SIZES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of an element by precision."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """The measured ceilings of a device."""

    ops_per_s: float
    bytes_per_s: float
    precision: str
    upper_bound: bool = False
    """True if the memory may be slower: caches may have held a part of the triad."""

    def times(self, factor: float) -> Peaks:
        """The ceilings of this many such devices."""
        return replace(self, ops_per_s=self.ops_per_s * factor, bytes_per_s=self.bytes_per_s * factor)


@dataclass(frozen=True, slots=True)
class Bound:
    """The ceiling of a layer, or of several together."""

    intensity: float
    """Operations a byte."""
    ceiling_ops: float | None
    """Operations per second; None if no device was measured."""
    bound: str
    """`compute`, `memory`, or `not known`."""


@dataclass(frozen=True, slots=True)
class ImageTimes:
    """Seconds of one image at the ceilings."""

    training: float
    evaluation: float


def bound_of(layers: Iterable[LayerCount], peaks: Peaks | None, batch: int = 1) -> Bound | None:
    """The ceiling of layers that run one after another; None if they count no operations.

    Without a device the intensity is that of float32. `batch`: images of a step.
    """
    item_size = ITEM_SIZES[peaks.precision if peaks else "float32"]
    operations = 0
    moved = computing = moving = 0.0
    for layer in layers:
        for work, elements in _passes(layer, batch):
            operations, moved = operations + work, moved + elements * item_size
            if peaks is not None:
                in_compute, in_memory = work / peaks.ops_per_s, elements * item_size / peaks.bytes_per_s
                # Each pass is bound by itself: the arithmetic units that idle while one waits for
                # memory do nothing for the next one.
                if in_compute >= in_memory:
                    computing += in_compute
                else:
                    moving += in_memory
    if not operations:
        return None
    if peaks is None:
        return Bound(operations / moved, None, "not known")
    bound = "compute" if computing >= moving else "memory"
    return Bound(operations / moved, operations / (computing + moving), bound)


def image_times(layers: Iterable[LayerCount], peaks: Peaks, batch: int = 1) -> ImageTimes:
    """The roofline time of an image: its layers and passes, each max(operations / P, bytes / B).

    Evaluating has the forward pass of each layer alone.
    """
    item_size = ITEM_SIZES[peaks.precision]
    training = evaluation = 0.0
    for layer in layers:
        for work, elements in _passes(layer, batch):
            training += max(work / peaks.ops_per_s, elements * item_size / peaks.bytes_per_s)
        if layer.operations.forward:
            moving = _elements(layer, batch) * item_size / peaks.bytes_per_s
            evaluation += max(layer.operations.forward / peaks.ops_per_s, moving)
    return ImageTimes(training, evaluation)


def _elements(layer: LayerCount, batch: int) -> float:
    """Elements that one image moves in one pass; a batch moves the weights once."""
    return layer.elements - layer.parameters + layer.parameters / batch


def _passes(layer: LayerCount, batch: int) -> list[tuple[int, float]]:
    """Operations and moved elements of the passes of a layer, if it counts any."""
    forward, backward = layer.operations.forward, layer.operations.backward
    if not forward:
        return []
    if layer.kind not in KERNEL_KINDS:
        return [(forward + backward, _elements(layer, batch))]
    passes = [(forward, _elements(layer, batch))]
    if backward:
        # The gradients have as many operations as the forward pass, or one of them is not needed.
        gradients = 2 if backward >= 2 * forward else 1
        passes.append((backward, gradients * _elements(layer, batch)))
    return passes


def roofline_rate(count: NetworkCount, peaks: Peaks, batch: int = 1) -> float | None:
    """Images per second that a device could train at its ceilings; None for an empty network."""
    whole = bound_of(count.layers, peaks, batch)
    if whole is None or whole.ceiling_ops is None:
        return None
    return whole.ceiling_ops / count.operations.total
