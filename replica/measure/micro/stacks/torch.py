"""PyTorch's own operators: oneDNN on CPUs, cuDNN on GPUs, channels last."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from replica.measure.micro.operands import Operands
from replica.measure.micro.stacks.contract import UnsupportedError
from workloads.micro import TRIAD_FACTOR, Case, Work

_ATEN = torch.ops.aten


class TorchStack:
    """The stack of PyTorch: each pass is one ATen operator.

    ATen pads both sides alike. For a convolution whose "same" padding is larger behind, the images
    are padded before they are timed; the passes then compute the gradient of the padding, too.
    """

    def version(self) -> str:
        """The version of PyTorch."""
        return f"torch {torch.__version__}"

    def device(self) -> str:
        """The first accelerator of any maker, or the CPU."""
        kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return "cpu" if kind is None else f"{kind.type}:0"

    def kernel(self, work: Work, copies: Iterable[Operands], precision: str) -> TorchKernel:
        """Prepare a pass, with copies of its operands on the device. Raises UnsupportedError."""
        kernel = TorchKernel(work, self.device(), getattr(torch, precision))
        try:
            for operands in copies:
                kernel.add(operands)
            kernel.call(0)
        except (RuntimeError, NotImplementedError) as error:
            raise UnsupportedError(f"torch on {self.device()}: {str(error).splitlines()[0]}") from None
        return kernel


class TorchKernel:
    """An operator and its tensors on the device."""

    def __init__(self, work: Work, device: str, precision: Any) -> None:
        self._work, self._device, self._precision = work, device, precision
        case = work.case
        # ATen takes one padding for both sides of an axis; other images are padded beforehand.
        self._even = case.operator != "conv" or all(low == high for low, high in case.padding)
        self._function = _function(work, self._even)
        self._tensors: list[tuple[Any, ...]] = []
        self._results: dict[int, Any] = {}
        self._written: dict[int, tuple[Any]] = {}

    def add(self, operands: Operands) -> None:
        """Put operands onto the device, in PyTorch's order of axes."""
        case, tensors = self._work.case, []
        for array, shape in zip(operands, self._work.operand_shapes, strict=True):
            tensor = torch.from_numpy(array)
            if case.operator == "conv" and shape == case.weight_shape:
                tensor = tensor.permute(-1, -2, *range(len(case.sizes)))
            elif case.sizes:
                tensor = tensor.movedim(-1, 1)
                if not self._even and shape[1:] == case.input_shape:
                    tensor = torch.nn.functional.pad(tensor, _pads(case))
            form = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.ndim, torch.contiguous_format)
            tensors.append(tensor.to(self._device, self._precision).contiguous(memory_format=form))
        if self._work.case.operator == "triad":
            # STREAM's a is there before the clock starts: the pages of a new one would take longer
            # than the triad.
            self._written[len(self._tensors)] = (torch.zeros_like(tensors[0]),)
        self._tensors.append(_with_indices(self._work, tensors))

    def call(self, copy: int) -> None:
        """Start the operator."""
        with torch.inference_mode():
            self._results[copy] = self._function(*self._tensors[copy], *self._written.get(copy, ()))

    def synchronise(self) -> None:
        """Wait for the device."""
        if self._device != "cpu":
            torch.accelerator.synchronize()

    def result(self, copy: int) -> NDArray[Any]:
        """Give the last result of these operands, channels last."""
        case, found = self._work.case, self._results[copy].float().cpu()
        if case.operator == "conv" and self._work.direction == "weights":
            found = found.permute(*range(2, found.ndim), 1, 0)
        elif case.sizes:
            found = found.movedim(1, -1)
            if not self._even and self._work.direction == "input":
                inside = (slice(low, low + size) for (low, _), size in zip(case.padding, case.sizes, strict=True))
                found = found[(slice(None), *inside)]
        return np.asarray(found.numpy(), np.float32)


def _pads(case: Case) -> list[int]:
    # PyTorch names the last axis first.
    return [side for pair in reversed(case.padding) for side in pair]


def _with_indices(work: Work, tensors: list[Any]) -> tuple[Any, ...]:
    case = work.case
    if case.operator != "maxpool" or work.direction == "forward":
        return tuple(tensors)
    # A training step has the places of the largest elements from its forward pass.
    pool = _ATEN.max_pool2d_with_indices if len(case.sizes) == 2 else _ATEN.max_pool3d_with_indices
    return (*tensors, pool(tensors[0], case.kernel, case.stride)[1])


def _function(work: Work, even: bool) -> Callable[..., Any]:
    case = work.case
    if case.operator == "triad":
        return lambda b, c, a: torch.add(b, c, alpha=TRIAD_FACTOR, out=a)
    if case.operator in ("fc", "gemm"):
        passes: dict[str, Callable[..., Any]] = {
            "forward": torch.matmul,
            "input": lambda dy, w: dy @ w.T,
            "weights": lambda x, dy: x.T @ dy,
        }
        return passes[work.direction]
    return _convolution(work, even) if case.operator == "conv" else _pooling(case, work)


def _convolution(work: Work, even: bool) -> Callable[..., Any]:
    case = work.case
    axes = len(case.sizes)
    pads = [low for low, _ in case.padding] if even else [0] * axes
    sizes = [s if even else s + sum(pair) for s, pair in zip(case.sizes, case.padding, strict=True)]
    rest = (None, case.stride, pads, [1] * axes, False, [0] * axes, 1)
    if work.direction == "forward":
        return lambda x, w: _ATEN.convolution(x, w, *rest)
    backward = _ATEN.convolution_backward
    if work.direction == "input":
        # Only the shape of the images matters: an expanded element has no memory of its own.
        return lambda dy, w: backward(
            dy, dy.new_empty(1).expand(work.batch, case.channels, *sizes), w, *rest, [True, False, False]
        )[0]
    shape = (case.filters, case.channels, *case.kernel)
    return lambda x, dy: backward(dy, x, x.new_empty(1).expand(shape), *rest, [False, True, False])[1]


def _pooling(case: Case, work: Work) -> Callable[..., Any]:
    flat, none = len(case.sizes) == 2, [0] * len(case.sizes)
    one = [1] * len(case.sizes)
    if case.operator == "maxpool":
        if work.direction == "forward":
            pool = torch.nn.functional.max_pool2d if flat else torch.nn.functional.max_pool3d
            return lambda x: pool(x, case.kernel, case.stride)
        gradient = _ATEN.max_pool2d_with_indices_backward if flat else _ATEN.max_pool3d_with_indices_backward
        return lambda x, dy, at: gradient(dy, x, case.kernel, case.stride, none, one, False, at)
    if work.direction == "forward":
        mean = torch.nn.functional.avg_pool2d if flat else torch.nn.functional.avg_pool3d
        return lambda x: mean(x, case.kernel, case.stride)
    back = _ATEN.avg_pool2d_backward if flat else _ATEN.avg_pool3d_backward
    images = (work.batch, case.channels, *case.sizes)
    form = torch.channels_last if flat else torch.channels_last_3d
    return lambda dy: back(
        dy,
        torch.empty_like(dy.new_empty(1).expand(images), memory_format=form),
        case.kernel,
        case.stride,
        none,
        False,
        True,
        None,
    )
