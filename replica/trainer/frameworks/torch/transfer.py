"""Batches on their way to an accelerator, ahead of the steps that take them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

Tensor = Any

BATCHES_AHEAD = 3
"""Batches that are on the device at a time: one is computed with while others are copied."""


class Transfer:
    """Copies batches by a stream of their own, next to the steps, from pinned memory.

    A few batches are under way at a time; the host waits for the oldest. For CUDA and ROCm; other
    devices get each batch as its step begins.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._slots: list[_Slot] = []
        self._count = 0
        if device.type == "cuda":
            stream = torch.cuda.Stream(device)
            self._slots = [_Slot(device, stream) for _ in range(BATCHES_AHEAD)]

    @contextmanager
    def __call__(self, *arrays: Any) -> Iterator[tuple[Tensor, ...]]:
        """Give the tensors on the device for a block, which starts all computing with them."""
        if not self._slots or all(isinstance(each, torch.Tensor) for each in arrays):
            yield tuple(_tensor(each).to(self._device) for each in arrays)
            return
        slot = self._slots[self._count % len(self._slots)]
        self._count += 1
        yield slot.send([_tensor(each) for each in arrays])
        # Behind all work of the block on this stream: the slot's memory is free when that is done.
        slot.used.record()


class _Slot:
    """Memory of a batch, on the host and on the device."""

    def __init__(self, device: Any, stream: Any) -> None:
        self._device = device
        self._stream = stream
        self._buffers: dict[int, tuple[Tensor, Tensor]] = {}
        self._copied = torch.cuda.Event()
        self.used = torch.cuda.Event()
        """The step that took the batch is done with it."""

    def send(self, values: list[Tensor]) -> tuple[Tensor, ...]:
        """Copy; give tensors that later work on the current stream may read."""
        # The copy before from this pinned memory may be under way; it was begun as many batches ago
        # as there are slots.
        self._copied.synchronize()
        pairs = [self._pair(number, value) for number, value in enumerate(values)]
        for (pinned, _), value in zip(pairs, values, strict=True):
            pinned.copy_(value)
        with torch.cuda.stream(self._stream):
            # The device's own memory of the slot, which the step of an earlier batch may still
            # read.
            self._stream.wait_event(self.used)
            for pinned, own in pairs:
                own.copy_(pinned, non_blocking=True)
            self._copied.record()
        torch.cuda.current_stream(self._device).wait_event(self._copied)
        return tuple(own for _, own in pairs)

    def _pair(self, number: int, value: Tensor) -> tuple[Tensor, Tensor]:
        """Pinned and device memory of the shape of an array; the last batch takes a part of it."""
        size = value.numel() * value.element_size()
        held = self._buffers.get(number)
        if held is None or len(held[0]) < size:
            pinned = torch.empty(size, dtype=torch.uint8, pin_memory=True)
            # What was in use before may still be read by a step.
            torch.cuda.current_stream(self._device).synchronize()
            held = self._buffers[number] = pinned, torch.empty(size, dtype=torch.uint8, device=self._device)
        pinned, own = (each[:size].view(value.dtype).view(value.shape) for each in held)
        return pinned, own


def _tensor(values: Any) -> Tensor:
    return values if isinstance(values, torch.Tensor) else torch.as_tensor(np.asarray(values))
