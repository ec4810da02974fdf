"""Rule set `science-1`: `aiperf-1` and the layers of scientific networks.

It adds volumes, transposed convolutions, further activations and poolings, RoI-align, and fully
connected layers on the regions of an image. Where `aiperf-1` has a rule, the two give the same
number. Every function here is a convention of this project in the terms of the AIPerf paper (Ren
et al. 2021, Tables 1 and 2): multiply-accumulate 2, exponential 8, division 4, anything else 1.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from aiperf.network.operations import (
    ADD,
    AIPERF_1,
    COMPARE,
    DIVIDE,
    EXPONENTIAL,
    MULTIPLY,
    MULTIPLY_ACCUMULATE,
    RULES,
    SUBTRACT,
    ZERO_KINDS,
    LayerFacts,
    NetworkCount,
    Operations,
    Rule,
    RuleSet,
    nothing,
)

BILINEAR = 4 * MULTIPLY_ACCUMULATE
"""Operations to interpolate one element between four neighbours."""


def _convolution(facts: LayerFacts) -> Operations:
    forward = MULTIPLY_ACCUMULATE * prod(facts.kernel) * prod(facts.output[:-1])
    return _with_gradients(facts, forward)


def _transposed_convolution(facts: LayerFacts) -> Operations:
    # Each input meets the whole kernel: it is the input gradient of the convolution it transposes.
    forward = MULTIPLY_ACCUMULATE * prod(facts.kernel) * prod(facts.inputs[0][:-1])
    return _with_gradients(facts, forward)


def _with_gradients(facts: LayerFacts, forward: int) -> Operations:
    gradients = 1 if facts.reads_network_input else 2
    return Operations(forward, gradients * forward + MULTIPLY_ACCUMULATE * prod(facts.kernel))


def _dense(facts: LayerFacts) -> Operations:
    # The regions share the weights, which are updated once.
    inputs, outputs = facts.kernel
    forward = MULTIPLY_ACCUMULATE * inputs * outputs * prod(facts.output[:-1])
    return Operations(forward, 2 * forward + MULTIPLY_ACCUMULATE * (inputs + 1) * outputs)


def _per_element(cost: int) -> Rule:
    return lambda facts: Operations(cost * prod(facts.output), 0)


def _average_pooling(facts: LayerFacts) -> Operations:
    return Operations((ADD * prod(facts.window) + DIVIDE) * prod(facts.output), 0)


def _roi_align(facts: LayerFacts) -> Operations:
    # Output (regions, bins, bins, channels); the window holds the samples of a bin.
    return Operations(((BILINEAR + ADD) * prod(facts.window) + DIVIDE) * prod(facts.output), 0)


SCIENCE_1 = RuleSet(
    "science-1",
    {
        **RULES,
        **dict.fromkeys(ZERO_KINDS, nothing),
        "conv": _convolution,
        "convtranspose": _transposed_convolution,
        "dense": _dense,
        "leakyrelu": _per_element(COMPARE + MULTIPLY),
        # 1 / (1 + exp(-x)); a change of sign is free.
        "sigmoid": _per_element(EXPONENTIAL + ADD + DIVIDE),
        # 1 - 2 / (exp(2 x) + 1)
        "tanh": _per_element(MULTIPLY + EXPONENTIAL + ADD + DIVIDE + SUBTRACT),
        "scale": _per_element(MULTIPLY),
        "averagepool": _average_pooling,
        "roialign": _roi_align,
    },
    frozenset((1, 2, 3, 4)),
)
"""Vectors, regions, images and volumes."""

RULE_SETS = {rules.name: rules for rules in (AIPERF_1, SCIENCE_1)}


@dataclass(frozen=True, slots=True)
class Passes:
    """Passes of one network for one image of a workload."""

    count: NetworkCount
    forward: int = 1
    backward: int = 1
    input_gradient: int = 0
    """Backward passes to the input alone, as through a discriminator to its generator."""

    @property
    def operations(self) -> int:
        """Operations of all these passes."""
        whole = self.count.operations
        return (
            self.forward * whole.forward
            + self.backward * whole.backward
            + self.input_gradient * self.count.input_gradient
        )


def training_operations(passes: Iterable[Passes]) -> int:
    """Operations to train one image of a workload: the passes of all its networks."""
    return sum(network.operations for network in passes)
