"""The operations between a network's convolutions, as regions that are computed together.

Normalisations, sums, ReLUs and pooling do little arithmetic, but each reads and writes whole
images: on an accelerator these passes over memory take most of a step. A compiler fuses a region
into few of them (`fused`); uncompiled, the parts are PyTorch's own operations one by one.

Images are tensors (N, C, H, W) with the channels innermost in memory.
"""

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, NamedTuple, Protocol

import torch
from torch._functorch import config as functorch
from torch.nn import functional

from aiperf.answers import in_one_line
from replica.trainer.failures import is_out_of_memory

log = logging.getLogger(__name__)

Tensor = Any
Edges = tuple[tuple[int, int], tuple[int, int]]
"""Zeros around images: rows above and below, columns left and right."""


class Mode(NamedTuple):
    """The way in which a region is computed."""

    training: bool
    fused: bool
    """True within a compiler, which decides by itself what may be overwritten."""


class Part(Protocol):
    """An operation of a region. Equal ones compute the same, on other tensors."""

    @property
    def tensors(self) -> int:
        """Number of parameters and statistics that it takes after its inputs."""

    def __call__(self, mode: Mode, inputs: Sequence[Tensor], own: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Compute the output; in training with the moments of the batch, if it takes them."""


@dataclass(frozen=True)
class Normalise:
    """Batch normalisation; in training by the batch's own moments (Ioffe and Szegedy 2015).

    Takes scale, shift, moving mean and moving variance. In training it gives the mean and the
    inverse standard deviation of the batch, with epsilon under its root.
    """

    epsilon: float
    tensors = 4

    def __call__(self, mode: Mode, inputs: Sequence[Tensor], own: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Normalise images."""
        (images,), (scale, shift, mean, variance) = inputs, own
        if not mode.training:
            return (functional.batch_norm(images, mean, variance, scale, shift, False, 0.0, self.epsilon),)
        if mode.fused:
            found = torch.native_batch_norm(images, scale, shift, None, None, True, 0.0, self.epsilon)
        else:
            # The function behind `functional.batch_norm`, which keeps the batch's moments to
            # itself: it takes cuDNN's kernel or PyTorch's own.
            found = torch._batch_norm_impl_index(
                images, scale, shift, None, None, True, 0.0, self.epsilon, torch.backends.cudnn.enabled
            )
        # Detached here: a compiler would prepare for gradients of the moments, too.
        return found[0], found[1].detach(), found[2].detach()


class _RectifiedOnCpu(torch.autograd.Function):  # type: ignore[misc]  # PyTorch gives it no type
    """ReLU that a compiler differentiates by its output, which the next layer keeps anyway.

    An infinite gradient of an output that is zero becomes NaN; PyTorch's own is zero.

    By PyTorch's own formula the compiler keeps a mask, too: a byte for each value. Its code for
    CPUs writes these bytes at a tenth of the speed of all else. An accelerator writes them as fast,
    and its backward pass has less to read of them than of the output.
    """

    @staticmethod
    def forward(context: Any, images: Tensor) -> Tensor:
        """Compute max(x, 0)."""
        output = torch.relu(images)
        context.save_for_backward(output)
        return output

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        """Pass the gradient on where the output is positive."""
        # Not by a comparison: the compiler would make it in the forward pass, and keep the mask.
        return gradient * torch.sign(context.saved_tensors[0])


@dataclass(frozen=True)
class Rectify:
    """ReLU; `owned` if nothing else reads its input, which may be overwritten then."""

    owned: bool
    tensors = 0

    def __call__(self, mode: Mode, inputs: Sequence[Tensor], own: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Compute max(x, 0)."""
        if mode.fused:
            return ((_RectifiedOnCpu.apply if inputs[0].device.type == "cpu" else torch.relu)(inputs[0]),)
        return (torch.relu_(inputs[0]) if self.owned else torch.relu(inputs[0]),)


@dataclass(frozen=True)
class Sum:
    """Sum of tensors; that of number `owned` may be overwritten, if it is not negative."""

    owned: int
    tensors = 0

    def __call__(self, mode: Mode, inputs: Sequence[Tensor], own: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Add."""
        others = list(inputs)
        if mode.fused:
            total = others.pop(0)
            for other in others:
                total = total + other
            return (total,)
        total = others.pop(self.owned) if self.owned >= 0 else others.pop(0) + others.pop(0)
        for other in others:
            total = total.add_(other)
        return (total,)


@dataclass(frozen=True)
class Pad:
    """Zeros around images."""

    edges: Edges
    tensors = 0

    def __call__(self, mode: Mode, inputs: Sequence[Tensor], own: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Pad."""
        rows, columns = self.edges
        return (functional.pad(inputs[0], (*columns, *rows)),)


@dataclass(frozen=True)
class Pool:
    """Maximum of windows; `edges` are what windows reach over, as TensorFlow's padding has it."""

    window: tuple[int, ...]
    stride: tuple[int, ...]
    edges: Edges
    tensors = 0

    def __call__(self, mode: Mode, inputs: Sequence[Tensor], own: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Pool."""
        rows, columns = self.edges
        if rows[0] == columns[0] == 0 and rows[1] < self.stride[0] and columns[1] < self.stride[1]:
            # ceil_mode lets windows reach over the far edges without a padded copy of the images.
            over = bool(rows[1] or columns[1])
            return (functional.max_pool2d(inputs[0], self.window, self.stride, ceil_mode=over),)
        # Not zeros, which would be the maximum of negative values.
        padded = functional.pad(inputs[0], (*columns, *rows), value=float("-inf"))
        return (functional.max_pool2d(padded, self.window, self.stride),)


@dataclass(frozen=True)
class Program:
    """The parts of a region in their order; the last one's output is the region's.

    Values are numbered: first the region's inputs, then the parts' outputs.
    """

    inputs: int
    parts: tuple[tuple[Part, tuple[int, ...]], ...]

    def __call__(self, mode: Mode, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Compute from inputs and the parts' own tensors; give the output and all moments."""
        values, own = list(tensors[: self.inputs]), list(tensors[self.inputs :])
        moments: list[Tensor] = []
        for part, places in self.parts:
            output, *found = part(mode, [values[place] for place in places], own[: part.tensors])
            del own[: part.tensors]
            values.append(output)
            moments += found
        return values[-1], *moments


BACKEND = "inductor"
"""PyTorch's name of the compiler."""


MOST_SHAPES = 10_000
"""Versions of a region that are kept. PyTorch keeps 8, after which it compiles nothing any more: a
network that has grown has more widths than that."""


@functools.cache
def fused(program: Program, training: bool) -> Callable[..., tuple[Tensor, ...]]:
    """A region as one function, compiled once for each set of shapes and types."""

    def region(*tensors: Tensor) -> tuple[Tensor, ...]:
        return program(Mode(training, True), tensors)

    # What PyTorch compiles is found by code, and but a few versions are kept for each: functions
    # that share code would throw out each other's.
    torch.compiler.config.recompile_limit = MOST_SHAPES
    torch.compiler.config.accumulated_recompile_limit = MOST_SHAPES
    # The backward pass is compiled with the forward pass, not as gradients are taken: a region that
    # fails here can be computed otherwise. Not every version of PyTorch has the setting.
    if hasattr(functorch, "force_non_lazy_backward_lowering"):
        functorch.force_non_lazy_backward_lowering = True
    own = FunctionType(region.__code__.replace(), region.__globals__, "region", None, region.__closure__)
    return torch.compile(own, fullgraph=True, dynamic=False, backend=BACKEND)  # type: ignore[no-any-return]


MOST_OF_A_REASON = 80
"""Characters of the reason of a failure: a record has room for two (`aiperf.facts.Name`)."""


def short(error: Exception) -> str:
    """An exception in a line that fits into a record."""
    own = getattr(error, "inner_exception", error)  # PyTorch wraps what a compiler raises
    # A compiler in another process hands on a traceback, whose last line is the reason.
    traceback = str(getattr(own, "details", "")).rstrip().split("\n")
    text = traceback[-1] or f"{type(own).__name__}: {in_one_line(str(own))}"
    return text[:MOST_OF_A_REASON]


class Fusion:
    """The compilation of a network's regions: the batches that it covers, and its failure."""

    def __init__(self) -> None:
        self.images = 0
        """Size of the batches that compiled regions take; others are too rare to be worth it."""
        self.failure: str | None = None
        """The reason why nothing is compiled any more; None: regions are."""

    def covers(self, images: int) -> bool:
        """True if regions of a batch of this size are compiled."""
        return self.failure is None and images == self.images

    def failed(self, error: Exception) -> None:
        """Compile nothing from here on. Raises the error if memory was short."""
        if is_out_of_memory(error):
            raise error
        self.failure = short(error)
        log.warning("what lies between convolutions is not compiled: %s", error)


class Region:
    """A program on the tensors of its place in a network."""

    def __init__(
        self,
        program: Program,
        tensors: Sequence[Tensor],
        keep: Sequence[Callable[[Tensor, Tensor], None]],
        fusion: Fusion,
    ) -> None:
        self.program = program
        self._tensors = tensors
        self._keep = keep
        """Take the moments of each normalisation, in the order of the parts."""
        self._fusion = fusion

    def __call__(self, training: bool, *inputs: Tensor) -> Tensor:
        """Compute the output."""
        output, *moments = self._compute(training, (*inputs, *self._tensors))
        for keep, mean, inverse in zip(self._keep, moments[::2], moments[1::2], strict=True) if training else ():
            keep(mean, inverse)
        return output

    def _compute(self, training: bool, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        if self._fusion.covers(len(tensors[0])):
            try:
                return fused(self.program, training)(*tensors)
            except Exception as error:  # of the compiler: nothing has been changed, and eager does it, too
                self._fusion.failed(error)
        return self.program(Mode(training, False), tensors)
