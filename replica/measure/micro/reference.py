"""Reference results of every operator in NumPy, in float64, position by position of the kernel.

They are exact and slow: a result is checked on cut-outs of a case.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.micro.work import TRIAD_FACTOR, Case, Work

Wide = NDArray[np.float64]


def reference(work: Work, operands: tuple[NDArray[Any], ...]) -> Wide:
    """The result of a pass from the operands of `Work.operand_shapes`."""
    wide = tuple(np.asarray(array, np.float64) for array in operands)
    case = work.case
    if case.operator == "triad":
        return wide[0] + TRIAD_FACTOR * wide[1]
    if case.operator in ("fc", "gemm"):
        return _dense(work, *wide)
    if case.operator == "conv":
        return _convolution(work, *wide)
    return _pooling_gradient(work, wide) if work.direction == "input" else _pooling(case, wide[0])


def _dense(work: Work, first: Wide, second: Wide) -> Wide:
    if work.direction == "forward":
        return first @ second
    return first @ second.T if work.direction == "input" else first.T @ second


def _positions(case: Case) -> list[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Each position of the kernel, and the elements that it meets in all outputs."""
    found = []
    for at in product(*map(range, case.kernel)):
        ends = (place + (size - 1) * step + 1 for place, size, step in zip(at, case.outputs, case.stride, strict=True))
        met = tuple(slice(place, end, step) for place, end, step in zip(at, ends, case.stride, strict=True))
        found.append((at, (slice(None), *met)))
    return found


def _convolution(work: Work, first: Wide, second: Wide) -> Wide:
    case = work.case
    around = ((0, 0), *case.padding, (0, 0))
    inside = (slice(None), *(slice(low, low + size) for (low, _), size in zip(case.padding, case.sizes, strict=True)))
    if work.direction == "input":
        gradient = np.zeros(
            (
                work.batch,
                *(s + low + high for s, (low, high) in zip(case.sizes, case.padding, strict=True)),
                case.channels,
            )
        )
        for at, met in _positions(case):
            gradient[met] += first @ second[at].T
        return gradient[inside]
    padded = np.pad(first, around)
    if work.direction == "forward":
        return np.asarray(sum(padded[met] @ second[at] for at, met in _positions(case)))
    weights = np.zeros(case.weight_shape)
    flat = second.reshape(-1, case.filters)
    for at, met in _positions(case):
        weights[at] = padded[met].reshape(-1, case.channels).T @ flat
    return weights


def _pooling(case: Case, images: Wide) -> Wide:
    parts = np.stack([images[met] for _, met in _positions(case)])
    return np.asarray(parts.max(0) if case.operator == "maxpool" else parts.mean(0))


def _pooling_gradient(work: Work, operands: tuple[Wide, ...]) -> Wide:
    case = work.case
    gradient = np.zeros(work.result_shape)
    if case.operator == "averagepool":
        for _, met in _positions(case):
            gradient[met] += operands[0] / len(_positions(case))
        return gradient
    images, outputs = operands
    best = np.stack([images[met] for _, met in _positions(case)]).argmax(0)
    for number, (_, met) in enumerate(_positions(case)):
        # Of equal elements the first has the gradient.
        gradient[met] += outputs * (best == number)
    return gradient


def relative_error(found: NDArray[Any], wanted: Wide) -> float:
    """Largest difference over the largest element of the reference."""
    largest = float(np.abs(wanted).max()) or 1.0
    return float(np.abs(np.asarray(found, np.float64) - wanted).max()) / largest
