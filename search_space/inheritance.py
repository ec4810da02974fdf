"""Weights carried through a morph: a child starts as the function that its parent has learned.

Inserted blocks get identity kernels (Wei et al. 2016), wider streams replicated channels with
divided readers (Net2WiderNet, Chen et al. 2016), larger kernels a border of zeros, and new skip
connections a scale of zero. These are pure functions on arrays. They preserve the function in
inference mode; with batch statistics, as in training, an inserted normalisation normalises.
"""

from collections.abc import Mapping
from functools import singledispatch
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import BATCHNORM_EPSILON, BatchNorm, Conv
from search_space.morphisms import AddSkip, Deepen, EnlargeKernel, Morph, Widen, find_stream

Array = NDArray[np.float32]
NodeWeights = Mapping[str, Array]
Weights = Mapping[str, NodeWeights]
"""Arrays by node and by name of the weight, as `Architecture.weight_shapes` names them."""


def inherit(
    architecture: Architecture, morph: Morph, weights: Weights, rng: np.random.Generator, noise: float = 0.0
) -> Weights:
    """The weights of `morph.apply(architecture)` that compute what `weights` compute.

    `noise` breaks the symmetry of replicated channels: the shares of their copies differ by this
    relative amount while their sum stays, so that the copies learn different things and the
    function is preserved. `rng` draws which channels are replicated, the noise, and the He-normal
    kernels of new projections.
    """
    child = morph.apply(architecture)
    carried = _carry(morph, architecture, child, weights, (rng, noise))
    return {node.name: carried[node.name] for node in child.nodes if child.weight_shapes(node)}


Randomness = tuple[np.random.Generator, float]


@singledispatch
def _carry(
    morph: Morph, parent: Architecture, child: Architecture, weights: Weights, randomness: Randomness
) -> dict[str, NodeWeights]:
    raise NotImplementedError(f"inheritance through {type(morph).__name__} is not implemented")


@_carry.register
def _(
    morph: Deepen, parent: Architecture, child: Architecture, weights: Weights, randomness: Randomness
) -> dict[str, NodeWeights]:
    result = dict(weights)
    for node in child.nodes:
        if node.name not in parent.by_name and child.weight_shapes(node):
            result[node.name] = _identity(node, child)
    return result


def _identity(node: Node, architecture: Architecture) -> NodeWeights:
    shapes = architecture.weight_shapes(node)
    # In inference mode the layer divides by sqrt(moving variance + epsilon), the variance being 1:
    # this scale makes it the identity exactly.
    if isinstance(node.layer, BatchNorm):
        return _normalisation(shapes["gamma"], scale=sqrt(1 + BATCHNORM_EPSILON))
    kernel = np.zeros(shapes["kernel"], np.float32)
    height, width, channels, _ = shapes["kernel"]
    # "Same" padding puts the centre here, also for even sizes.
    kernel[(height - 1) // 2, (width - 1) // 2] = np.eye(channels, dtype=np.float32)
    return {"kernel": kernel}


def _normalisation(shape: tuple[int, ...], scale: float) -> NodeWeights:
    return {
        "gamma": np.full(shape, scale, np.float32),
        "beta": np.zeros(shape, np.float32),
        "moving_mean": np.zeros(shape, np.float32),
        "moving_variance": np.ones(shape, np.float32),
    }


@_carry.register
def _(
    morph: Widen, parent: Architecture, child: Architecture, weights: Weights, randomness: Randomness
) -> dict[str, NodeWeights]:
    rng, noise = randomness
    stream = find_stream(parent, morph.stream)
    extra = rng.integers(stream.channels, size=morph.channels - stream.channels)
    origin = np.concatenate([np.arange(stream.channels), extra])
    share = _shares(origin, rng, noise)
    result = dict(weights)
    for name in stream.members:
        if name in weights:
            # The last axis of kernels, biases and normalisation weights is the output channel.
            result[name] = {key: array[..., origin] for key, array in weights[name].items()}
    for name in stream.consumers:
        own = dict(result[name])
        # The second axis from the end is the input channel, of (Kh, Kw, Ci, Co) and of (Ci, Co).
        own["kernel"] = (own["kernel"][..., origin, :] * share[:, None]).astype(np.float32)
        result[name] = own
    return result


def _shares(origin: NDArray[np.intp], rng: np.random.Generator, noise: float) -> NDArray[np.float64]:
    """The share of each copy of a channel, (channels,); the copies of one channel sum to 1."""
    raw = 1.0 + noise * rng.uniform(-1.0, 1.0, size=len(origin))
    sums = np.bincount(origin, weights=raw)
    shares: NDArray[np.float64] = raw / sums[origin]
    return shares


@_carry.register
def _(
    morph: AddSkip, parent: Architecture, child: Architecture, weights: Weights, randomness: Randomness
) -> dict[str, NodeWeights]:
    result = dict(weights)
    for node in child.nodes:
        if node.name in parent.by_name or not child.weight_shapes(node):
            continue
        shapes = child.weight_shapes(node)
        if isinstance(node.layer, Conv):
            result[node.name] = {"kernel": _he_normal(shapes["kernel"], randomness[0])}
        else:
            # The new branch adds nothing, whatever its convolution gives. The scale's gradient is
            # not 0, so that the branch learns once it trains.
            result[node.name] = _normalisation(shapes["gamma"], scale=0.0)
    return result


def _he_normal(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    # He et al. 2015, equation 10: variance 2 / fan-in.
    fan_in = int(np.prod(shape[:-1]))
    return rng.normal(0.0, sqrt(2.0 / fan_in), size=shape).astype(np.float32)


@_carry.register
def _(
    morph: EnlargeKernel, parent: Architecture, child: Architecture, weights: Weights, randomness: Randomness
) -> dict[str, NodeWeights]:
    node = parent.by_name[morph.conv]
    new = child.by_name[morph.conv]
    assert isinstance(node.layer, Conv)
    assert isinstance(new.layer, Conv)
    (shape,) = parent.input_shapes(node)
    # With a stride, "same" padding need not grow by one on either side: the old kernel goes where
    # its elements meet the same pixels.
    padding = [
        (offset, after - before - offset)
        for size, before, after, stride in zip(
            shape[:2], node.layer.kernel, new.layer.kernel, node.layer.stride, strict=True
        )
        for offset in [_padding_before(size, after, stride) - _padding_before(size, before, stride)]
    ]
    own = dict(weights[morph.conv])
    own["kernel"] = np.pad(own["kernel"], [*padding, (0, 0), (0, 0)])
    return {**weights, morph.conv: own}


def _padding_before(size: int, kernel: int, stride: int) -> int:
    """Zeros that "same" padding puts before the first element (TensorFlow's convention)."""
    outputs = -(-size // stride)
    return max((outputs - 1) * stride + kernel - size, 0) // 2
