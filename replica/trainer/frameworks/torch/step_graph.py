"""A training step as one graph of an accelerator, which the host starts as a whole.

A step of a small batch has a thousand kernels that each take less time than the host takes to start
them. A CUDA graph holds them all: it is captured once, after a few steps in which libraries have
loaded what they need, and replayed on the same memory.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from replica.trainer.frameworks.torch.layers import Draws
from replica.trainer.frameworks.torch.memory import memory_part, warm_up_bytes
from replica.trainer.frameworks.torch.regions import short

log = logging.getLogger(__name__)

Tensor = Any
Step = Callable[[Tensor, Tensor], Tensor]

STEPS_BEFORE = 3
"""Steps without a graph, for libraries to choose algorithms and to take their memory."""


class Graph(Protocol):
    """A captured step."""

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        """Do the step on another batch; give its results, which stay as they are."""


class CudaGraph:
    """A step captured by CUDA, or by HIP."""

    def __init__(self, step: Step, images: Tensor, labels: Tensor, generators: Sequence[Any]) -> None:
        # A graph reads the addresses that it was captured with: every batch is copied to them.
        self._images, self._labels = torch.empty_like(images), torch.empty_like(labels)
        self._graph = torch.cuda.CUDAGraph()
        for generator in generators:
            # Registered, so that replays draw from the seed that the host sets before each of them.
            # PyTorch refuses to capture draws of another generator.
            self._graph.register_generator_state(generator)
        # Threads of the trainer may go on using the device: they write weights, and sample it.
        # A capture that fails leaves its stream the current one, unless a block around it ends.
        own = torch.cuda.stream(torch.cuda.current_stream())
        with own, torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._results = step(self._images, self._labels)

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        """Do the step on another batch; give its results, which stay as they are."""
        self._images.copy_(images)
        self._labels.copy_(labels)
        self._graph.replay()
        # The next replay overwrites them, and they are read some steps later.
        return self._results.clone()


class Capture:
    """Does steps, at first one kernel after the other, then by a graph."""

    def __init__(self, step: Step, draws: Sequence[Draws], make: Callable[..., Graph], images: int) -> None:
        self._step = step
        self._draws = draws
        self._make = make
        self._images = images
        """Size of the batches that the graph takes; others are done without it."""
        self._done = 0
        self._graph: Graph | None = None
        self.failure: str | None = None
        """The reason why there will be no graph."""

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        """Do a step."""
        if self.failure is None and len(images) == self._images:
            if self._graph is not None:
                return self._graph(images, labels)
            if self._done >= STEPS_BEFORE and self._capture(images, labels):
                assert self._graph is not None
                return self._graph(images, labels)
            self._done += 1
        return self._step(images, labels)

    def _capture(self, images: Tensor, labels: Tensor) -> bool:
        """Capture without computing anything; true if it was possible."""
        if (reason := short_of_memory(images.device)) is not None:
            self.failure = reason
        else:
            try:
                self._graph = self._make(self._step, images, labels, [each.generator for each in self._draws])
            except Exception as error:  # of a library that cannot be captured
                self.failure = short(error)
                for each in self._draws:
                    each.renew()
        if self.failure is not None:
            log.info("steps are not captured as a graph: %s", self.failure)
        return self.failure is None


def short_of_memory(device: Any) -> str | None:
    """Say why a graph, which keeps the memory of a step to itself, does not fit; None if it does.

    Batches of other sizes need the memory of a step in addition to it.
    """
    if device.type != "cuda":
        return None
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    # Another replica may have the rest of the device.
    part = memory_part(torch.cuda)
    # The next trial's ranks warm up next to this one.
    free = min(free - warm_up_bytes(total, part), part * total - torch.cuda.memory_reserved(device))
    held, most = torch.cuda.memory_allocated(device), torch.cuda.max_memory_allocated(device)
    # Twice a step's memory, for the graph and for a batch of another size, with a tenth to spare.
    if free >= 2.2 * (most - held):
        return None
    return f"{free / 1e9:.1f} GB are free, and a step takes {(most - held) / 1e9:.1f} GB"
