"""The trained values in the memory layout that PyTorch's operations are fastest with.

A Keras variable keeps its shape: weights files, checkpoints and collectives read and set it as
ever. Only its memory is in another order, of which the operation takes a view, so that no step
transposes a kernel.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Tensor = Any


@dataclass(frozen=True, slots=True)
class Layout:
    """The memory of a variable: an order of its axes, and the view that is computed with."""

    order: tuple[int, ...]
    """The axes from the outermost to the innermost in memory; empty: as they are."""
    computed: Callable[[Tensor], Tensor]
    """The view of a tensor with its axes in this order."""
    stored: Callable[[Tensor, Sequence[int]], Tensor]
    """The axes in this order, of these lengths, of a tensor like that view."""

    def memory(self, value: Tensor) -> Tensor:
        """A contiguous view of a variable's value that is laid out."""
        return value.permute(self.order) if self.order else value

    def original(self, memory: Tensor) -> Tensor:
        """A view of laid out memory with the axes of the variable."""
        return memory.permute([self.order.index(axis) for axis in range(len(self.order))]) if self.order else memory

    def apply(self, variable: Any) -> Tensor:
        """Lay out a variable, whose shape and values stay; give its memory."""
        value = variable.value
        # Keras's variable keeps its axes, and gets memory in the other order: a permuted view of
        # it.
        value.data = self.original(self.memory(value.data).contiguous())
        return self.memory(value.detach())


CONVOLUTION = Layout((3, 0, 1, 2), lambda memory: memory.permute(0, 3, 1, 2), lambda own, _: own.permute(0, 2, 3, 1))
"""Kernels (H, W, I, O), computed with as (O, I, H, W), the channels innermost in memory."""

DEPTHWISE = Layout((2, 3, 0, 1), lambda memory: memory.flatten(0, 1)[:, None], lambda own, sizes: own.reshape(*sizes))
"""Kernels (H, W, I, M), computed with as (I * M, 1, H, W)."""

AS_IT_IS = Layout((), lambda memory: memory, lambda own, _: own)


class Parameter:
    """A trained variable. `computed` is the leaf of autograd's graph."""

    def __init__(self, variable: Any, layout: Layout, dtype: Any) -> None:
        self.layout = layout
        self.memory: Tensor = layout.apply(variable)
        self.source: Tensor = layout.computed(self.memory)
        copied = dtype != self.source.dtype
        # `detach` shares the memory: what the optimiser writes to the variable, the next pass reads
        # here.
        computed = torch.empty_like(self.source, dtype=dtype) if copied else self.source.detach()
        self.computed: Tensor = computed.requires_grad_()
        """A view of the memory, or a copy of it in the layer's type (`Parameters.refresh`)."""


class Parameters:
    """The parameters of a network, by the Keras variables that hold them."""

    def __init__(self) -> None:
        self._of: dict[int, Parameter] = {}
        self._copies: list[Tensor] = []
        self._sources: list[Tensor] = []

    def add(self, variable: Any, dtype: Any, layout: Layout = AS_IT_IS) -> Tensor:
        """Take a variable in; give the tensor that its operation computes with."""
        parameter = self._of[id(variable)] = Parameter(variable, layout, dtype)
        if parameter.computed.dtype != parameter.source.dtype:
            self._copies.append(parameter.computed)
            self._sources.append(parameter.source)
        return parameter.computed

    def refresh(self) -> None:
        """Copy the values of parameters that are computed with in another type than float32."""
        if self._copies:
            with torch.no_grad():
                torch._foreach_copy_(self._copies, self._sources)

    def layout(self, variable: Any) -> Layout:
        """The layout of a variable; that of Keras for a variable of another network."""
        own = self._of.get(id(variable))
        return AS_IT_IS if own is None else own.layout

    def leaves(self, variables: Iterable[Any]) -> list[Tensor]:
        """The tensors to differentiate by; variables of no parameter stand for themselves."""
        pairs = [(variable, self._of.get(id(variable))) for variable in variables]
        return [variable.value if own is None else own.computed for variable, own in pairs]

    def zeros(self, variables: Iterable[Any]) -> list[Tensor]:
        """Make the gradients of a rank without images."""
        return [torch.zeros_like(self.layout(variable).memory(variable.value.detach())) for variable in variables]

    def originals(self, gradients: Sequence[Tensor], variables: Sequence[Any]) -> list[Tensor]:
        """Give gradients the axes of their variables, without a copy."""
        pairs = zip(gradients, variables, strict=True)
        return [self.layout(variable).original(gradient) for gradient, variable in pairs]

    def gradients(self, found: Sequence[Tensor], variables: Sequence[Any]) -> list[Tensor]:
        """Turn gradients by `leaves` into the variables' types, contiguous like their memory."""
        stored: list[Tensor] = []
        copies: list[Tensor] = []
        sources: list[Tensor] = []
        for gradient, variable in zip(found, variables, strict=True):
            own = self._of.get(id(variable))
            each = gradient if own is None else own.layout.stored(gradient, own.memory.shape)
            dtype = variable.value.dtype
            # The fused optimiser reads memory as it lies, so that a gradient must lie as its
            # variable does.
            if each.dtype != dtype or not each.is_contiguous():
                sources.append(each)
                each = torch.empty(each.shape, dtype=dtype, device=each.device)
                copies.append(each)
            stored.append(each)
        if copies:
            torch._foreach_copy_(copies, sources)
        return stored
