"""Floating-point operations of instructions of XLA programs, by XLA's own rules.

The formulas are those of XLA's `HloCostAnalysis` (openxla/xla, xla/service/hlo_cost_analysis.cc):
two operations for each multiply-accumulate of a convolution or a matrix product, those with padding
left out; one for each element of an elementwise result or of a reduced array. Other than there,
transcendental functions count as one operation, and integers do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

FLOATING = frozenset((10, 11, 12, 16, *range(19, 26), 28, 29))
"""F16, F32, F64, BF16 and the types of 8 bits in XLA's enumeration `PrimitiveType`."""

ELEMENTWISE = frozenset((
    "add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "clamp", "negate", "abs", "sign",
    "compare", "select", "power", "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "tanh",
    "sqrt", "rsqrt", "cbrt", "sine", "cosine", "tan", "erf", "atan2", "floor", "ceil", "round-nearest-even",
))  # fmt: skip

LIBRARY_CALL = "custom-call"


def work_of(instruction: Any, by_id: Mapping[int, Any]) -> float | None:
    """Operations of an instruction without those of computations that it calls.

    `by_id` has its operands. None for a call of a library, which XLA does not describe.
    """
    if instruction.opcode == LIBRARY_CALL:
        return None
    operands = [by_id[number] for number in instruction.operand_ids]
    # Comparisons give booleans, selections take one first: the last operand has the type.
    typed = operands[-1] if operands else instruction
    if typed.shape.element_type not in FLOATING:
        return 0.0
    rule = _RULES.get(instruction.opcode)
    if rule is not None:
        return float(rule(instruction, operands))
    return float(_elements(instruction)) if instruction.opcode in ELEMENTWISE else 0.0


def _elements(instruction: Any) -> int:
    return int(prod(instruction.shape.dimensions))


def _convolution(instruction: Any, operands: list[Any]) -> int:
    """Multiply-accumulates whose input is neither padding nor a hole between dilated elements."""
    images, kernel = (list(operand.shape.dimensions) for operand in operands[:2])
    result = list(instruction.shape.dimensions)
    axes = instruction.convolution_dimension_numbers
    positions = 1
    for number, window in enumerate(instruction.window.dimensions):
        outputs = np.arange(result[axes.output_spatial_dimensions[number]])[:, None] * window.stride
        taps = np.arange(window.size)[None, :] * max(window.window_dilation, 1)
        places = outputs - window.padding_low + taps
        dilation = max(window.base_dilation, 1)
        size = images[axes.input_spatial_dimensions[number]]
        positions *= int(np.sum((places >= 0) & (places % dilation == 0) & (places // dilation < size)))
    filters = kernel[axes.kernel_output_feature_dimension] * kernel[axes.kernel_input_feature_dimension]
    groups = max(instruction.batch_group_count, 1)
    return int(2 * positions * filters * images[axes.input_batch_dimension] // groups)


def _dot(instruction: Any, operands: list[Any]) -> int:
    contracted = instruction.dot_dimension_numbers.lhs_contracting_dimensions
    return 2 * _elements(instruction) * int(prod(operands[0].shape.dimensions[axis] for axis in contracted))


def _window(instruction: Any, operands: list[Any]) -> int:
    return _elements(instruction) * int(prod(window.size for window in instruction.window.dimensions))


_RULES: Mapping[str, Callable[[Any, list[Any]], int]] = {
    "convolution": _convolution,
    "dot": _dot,
    "reduce": lambda instruction, operands: _elements(operands[0]),
    "reduce-window": _window,
    "select-and-scatter": lambda instruction, operands: (
        _elements(operands[1]) * (1 + prod(window.size for window in instruction.window.dimensions))
    ),
    "scatter": lambda instruction, operands: _elements(operands[-1]),
}
