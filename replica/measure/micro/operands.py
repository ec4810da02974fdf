"""Operands of the micro suite: data of each kind, He-initialised weights, gradients."""

from collections.abc import Callable
from math import prod, sqrt

import numpy as np
from numpy.typing import NDArray

from aiperf.errors import AiperfError
from workloads.micro import Shape, Work

Array = NDArray[np.float32]
Operands = tuple[Array, ...]

OCCUPANCY = 0.03
"""Share of pixels of a jet image of 64 x 64 that are not zero."""

SPARSE_SIDE = 64


class DegenerateOperandsError(AiperfError):
    """Operands with which a library could save work, such as weights that are all zero."""


def make_operands(work: Work, generator: np.random.Generator) -> Operands:
    """Make new arrays for one call, as float32, each in memory of its own.

    Weights follow He et al. 2015, section 2.2: normal with variance 2 / inputs of an output.
    """
    case = work.case
    spread = sqrt(2 / prod(case.weight_shape[:-1])) if case.has_weights else 1.0
    made: list[Array] = []
    for shape in work.operand_shapes:
        if case.has_weights and shape == case.weight_shape:
            made.append(_normal(generator, shape, spread))
        elif case.operator == "triad":
            made.append(_repeated(shape, lambda size: generator.random(size, dtype=np.float32)))
        elif shape[1:] == case.input_shape and case.operator != "gemm":
            made.append(data(case.kind, shape, generator))
        else:
            made.append(_normal(generator, shape, 1.0))
    # Constant operands draw less power than data: a device that is limited by it would be faster.
    check_operands(tuple(made))
    return tuple(made)


def data(kind: str, shape: Shape, generator: np.random.Generator) -> Array:
    """Draw a batch of inputs: noise around smooth fields, sparse energies, or lognormal counts.

    Occupancy of sparse images falls with their area, since a jet has as many particles at any
    resolution.
    """
    if kind == "sparse2d":
        share = OCCUPANCY * SPARSE_SIDE**2 / max(prod(shape[1:3]), SPARSE_SIDE**2) if len(shape) > 2 else OCCUPANCY

        def energies(size: int) -> Array:
            kept = generator.random(size, dtype=np.float32) < share
            kept[0] = True  # the smallest batch has an entry, too
            return generator.standard_exponential(size, dtype=np.float32) * kept

        return _repeated(shape, energies)
    if kind == "dense3d":
        return _repeated(shape, lambda size: np.exp(generator.standard_normal(size, dtype=np.float32)))
    return _normal(generator, shape, 1.0)


PERIOD = 1_048_573
"""Number of drawn values that repeat: a prime, so that rows or planes begin at different ones."""

LEVELS = 1000
"""Number of different values of an array without ties."""


def without_ties(array: Array, seed: int) -> Array:
    """Make elements in [0, 1) that all differ in windows of up to 5 along each axis.

    They differ by a thousandth at least: TensorFlow's gradient of max-pooling over volumes takes
    close elements for equal.
    """
    # Places in base 5: within a window of 5 along each axis no two elements have the same number.
    axes = np.ogrid[tuple(slice(size) for size in array.shape)]
    images, *spatial, channels = axes
    place = sum(5**number * axis for number, axis in enumerate(spatial)) + 7 * channels + 11 * images
    levels = np.random.default_rng(seed).permutation(LEVELS).astype(np.float32) / LEVELS
    return np.asarray(levels[place % LEVELS], np.float32)


def occupancy(array: Array) -> float:
    """The share of elements that are not zero."""
    return float(np.count_nonzero(array)) / array.size


def check_operands(operands: Operands) -> None:
    """Raise DegenerateOperandsError if an array has one value only."""
    for number, array in enumerate(operands):
        if array.size > 1 and array.min() == array.max():
            raise DegenerateOperandsError(f"operand {number} of shape {array.shape} has one value only")


def _normal(generator: np.random.Generator, shape: Shape, spread: float) -> Array:
    return _repeated(shape, lambda size: generator.standard_normal(size, dtype=np.float32) * np.float32(spread))


def _repeated(shape: Shape, draw: Callable[[int], Array]) -> Array:
    """Draw numbers, and repeat them if there are more than `PERIOD`.

    Drawing a billion numbers takes longer than all calls that use them.
    """
    size = prod(shape)
    return np.resize(draw(min(size, PERIOD)), shape)
