"""Operation counting by rule set `aiperf-1`: forward and backward, per image and layer.

The rules follow the AIPerf paper (Ren et al. 2021, section 4.4, Tables 1 to 3). Operation weights:
multiply- accumulate 2; add, subtract, multiply, compare 1; divide, square root 4; exponential 8.
All counts are integers.

A rule is one small function from the shapes of a layer to its operations, registered under the
layer's kind. The source of the shapes does not matter: `count` takes them from an `Architecture`,
`replica.measure.counting.keras_operations` from the weights and tensors of a built Keras model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple

from aiperf.errors import UncountedLayerError
from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import LAYER_TYPES, AveragePool, Layer, MaxPool, RoiAlign, Shape

RULE_SET = "aiperf-1"

MULTIPLY_ACCUMULATE = 2
ADD = SUBTRACT = MULTIPLY = COMPARE = 1
DIVIDE = SQUARE_ROOT = 4
EXPONENTIAL = 8


@dataclass(frozen=True, slots=True)
class Operations:
    """Operations per image of a forward and of a backward pass (weight update included)."""

    forward: int
    backward: int

    @property
    def total(self) -> int:
        """Operations to train one image."""
        return self.forward + self.backward

    def __add__(self, other: Operations) -> Operations:
        return Operations(self.forward + other.forward, self.backward + other.backward)

    def work(self, images_trained: int, images_evaluated: int) -> int:
        """Operations for this many images: training costs both passes, evaluating one."""
        return images_trained * self.total + images_evaluated * self.forward


NOTHING = Operations(0, 0)


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """The facts that a rule may look at. Shapes leave the batch out."""

    inputs: tuple[Shape, ...]
    output: Shape
    kernel: Shape = ()
    """Shape of the weights: (K..., Ci / groups, Co), transposed (K..., Co, Ci), or (Ci, Co)."""
    window: Shape = (1, 1)
    """Window of a pooling layer; samples of a bin of RoI-align."""
    reads_network_input: bool = False
    """True if all inputs are the network's input, directly or through layers that count zero."""


class LayerCount(NamedTuple):
    """The count of one layer of a network."""

    name: str
    kind: str
    operations: Operations
    parameters: int
    elements: int = 0
    """Elements of its inputs, its output and its weights, once each."""


@dataclass(frozen=True, slots=True)
class TypeCount:
    """The count of all layers of one kind."""

    count: int
    operations: Operations
    parameters: int


@dataclass(frozen=True, slots=True)
class NetworkCount:
    """The count of a network, layer by layer and in all."""

    layers: tuple[LayerCount, ...]

    @property
    def operations(self) -> Operations:
        """Operations of the whole network."""
        return Operations(
            sum(layer.operations.forward for layer in self.layers),
            sum(layer.operations.backward for layer in self.layers),
        )

    @property
    def parameters(self) -> int:
        """Number of weights, moving statistics included."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def input_gradient(self) -> int:
        """Operations of a backward pass to the input alone, without weight updates.

        One forward pass of every layer with a weight matrix.
        """
        return sum(layer.operations.forward for layer in self.layers if layer.kind in KERNEL_KINDS)

    @property
    def by_kind(self) -> dict[str, TypeCount]:
        """Sums over layers of one kind, in the order of first appearance."""
        sums: dict[str, TypeCount] = {}
        for layer in self.layers:
            old = sums.get(layer.kind, TypeCount(0, NOTHING, 0))
            sums[layer.kind] = TypeCount(
                old.count + 1, old.operations + layer.operations, old.parameters + layer.parameters
            )
        return sums


Rule = Callable[[LayerFacts], Operations]
RULES: dict[str, Rule] = {}
"""The rule of every kind of layer that can be counted."""


def rule(*kinds: str) -> Callable[[Rule], Rule]:
    """Register a rule for layers of these kinds."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(kinds, function))
        return function

    return register


@rule("conv")
def _convolution(facts: LayerFacts) -> Operations:
    # Tables 1 and 2. Table 3 (ratio 1.9755) has no input gradient for the convolution that reads
    # the images.
    weights = prod(facts.kernel)
    forward = MULTIPLY_ACCUMULATE * weights * facts.output[0] * facts.output[1]
    gradients = 1 if facts.reads_network_input else 2
    return Operations(forward, gradients * forward + MULTIPLY_ACCUMULATE * weights)


@rule("dense")
def _dense(facts: LayerFacts) -> Operations:
    # Tables 1 and 2; the update includes the bias.
    inputs, outputs = facts.kernel
    forward = MULTIPLY_ACCUMULATE * inputs * outputs
    return Operations(forward, 2 * forward + MULTIPLY_ACCUMULATE * (inputs + 1) * outputs)


@rule("batchnorm")
def _batch_normalisation(facts: LayerFacts) -> Operations:
    # Table 1: a multiply-accumulate, an add and a divide an element. Table 3: 1,908 over 53 layers
    # backward.
    return Operations((MULTIPLY_ACCUMULATE + ADD + DIVIDE) * prod(facts.output), 36)


@rule("relu")
def _relu(facts: LayerFacts) -> Operations:
    return Operations(COMPARE * prod(facts.output), 0)


@rule("add")
def _addition(facts: LayerFacts) -> Operations:
    return Operations(ADD * (len(facts.inputs) - 1) * prod(facts.output), 0)


@rule("maxpool")
def _max_pooling(facts: LayerFacts) -> Operations:
    return Operations(COMPARE * prod(facts.window) * prod(facts.output), 0)


@rule("globalpool")
def _global_average_pooling(facts: LayerFacts) -> Operations:
    return Operations(ADD * prod(facts.inputs[0]) + DIVIDE * facts.output[-1], 0)


@rule("softmax")
def _softmax(facts: LayerFacts) -> Operations:
    return Operations((EXPONENTIAL + ADD + DIVIDE) * prod(facts.output), 0)


ZERO_KINDS = frozenset(kind for kind, layer in LAYER_TYPES.items() if layer.counts_zero)
"""Layers that move or drop data and count nothing."""

KERNEL_KINDS = frozenset(kind for kind, layer in LAYER_TYPES.items() if layer.has_kernel)
"""Layers with a weight matrix."""


@rule("input", "dropout", "concat", "flatten", "zeropad")
def nothing(facts: LayerFacts) -> Operations:
    """Count no operations."""
    return NOTHING


@dataclass(frozen=True, eq=False)
class RuleSet:
    """Rules with a name. Counts and scores of different rule sets never compare."""

    name: str
    rules: Mapping[str, Rule]
    """Rule for each kind of layer."""
    axes: frozenset[int]
    """Numbers of axes of the outputs that the rules cover."""

    def covers(self, kind: str, output: Shape) -> bool:
        """True if there is a rule for such a layer."""
        return kind in self.rules and len(output) in self.axes

    def count(self, kind: str, facts: LayerFacts) -> Operations:
        """Operations per image of one layer. Raises UncountedLayerError if no rule covers it."""
        if not self.covers(kind, facts.output):
            raise UncountedLayerError([kind])
        return self.rules[kind](facts)


AIPERF_1 = RuleSet(RULE_SET, RULES, frozenset((1, 3)))
"""Rules of the AIPerf paper, for vectors and images."""


def sees_only_images(kind: str, inputs: Iterable[bool]) -> bool:
    """True if a layer's output is the network's input, except for layers that count zero.

    `inputs` holds the same fact of each of the layer's own inputs (none for the input layer).
    """
    return kind in ZERO_KINDS and all(inputs)


@lru_cache(maxsize=65536)
def count_node(
    layer: Layer, inputs: tuple[Shape, ...], reads_images: bool, rule_set: RuleSet = AIPERF_1
) -> tuple[Operations, int]:
    """Operations and parameters of a layer; cached, since architectures share most layers."""
    weights = layer.weight_shapes(inputs)
    facts = LayerFacts(
        inputs=inputs,
        output=layer.output_shape(inputs),
        kernel=weights.get("kernel", ()),
        window=layer.window if isinstance(layer, MaxPool | AveragePool | RoiAlign) else (1, 1),
        reads_network_input=reads_images,
    )
    return rule_set.count(layer.kind, facts), sum(map(prod, weights.values()))


@lru_cache(maxsize=4096)
def count(architecture: Architecture, rule_set: RuleSet = AIPERF_1) -> NetworkCount:
    """Count an architecture, per image.

    Raises UncountedLayerError listing every layer without a rule.
    """
    return NetworkCount(tuple(_counts(architecture, rule_set)))


def totals(architecture: Architecture) -> tuple[Operations, int]:
    """Operations per image and parameters of an architecture; as `count`, but nothing is kept.

    Raises UncountedLayerError.
    """
    forward = backward = weights = 0
    shapes, only_images = architecture.shapes, dict[str, bool]()
    for node in architecture.nodes:
        names = node.inputs
        reads_images = only_images[names[0]] if len(names) == 1 else all(only_images[name] for name in names)
        inputs = (shapes[names[0]],) if len(names) == 1 else tuple([shapes[name] for name in names])
        counted = node.counted
        if counted is None or counted[1] is not reads_images or counted[0] != inputs:
            try:
                operations, parameters = count_node(node.layer, inputs, reads_images)
            except UncountedLayerError:
                _check_covered(architecture, AIPERF_1)  # names all of them
                raise
            counted = (inputs, reads_images, operations.forward, operations.backward, parameters)
            object.__setattr__(node, "counted", counted)
        only_images[node.name] = reads_images and node.layer.kind in ZERO_KINDS
        forward += counted[2]
        backward += counted[3]
        weights += 0 if node.shares else counted[4]
    return Operations(forward, backward), weights


def _counts(architecture: Architecture, rule_set: RuleSet) -> Iterator[LayerCount]:
    """The counts of the layers, in order."""
    for node, inputs, operations, parameters in _counted(architecture, rule_set):
        elements = sum(map(prod, inputs)) + prod(architecture.shapes[node.name]) + parameters
        yield LayerCount(node.name, node.layer.kind, operations, 0 if node.shares else parameters, elements)


Counted = tuple[Node, tuple[Shape, ...], Operations, int]
"""A node, the shapes that it reads, its operations, and its weights, also those that it shares."""


def _check_covered(architecture: Architecture, rule_set: RuleSet) -> None:
    """Raises UncountedLayerError listing every layer without a rule."""
    shapes = architecture.shapes
    kinds = {(node.layer.kind, len(shapes[node.name])): shapes[node.name] for node in architecture.nodes}
    if not all(rule_set.covers(kind, shape) for (kind, _), shape in kinds.items()):
        uncounted = [node for node in architecture.nodes if not rule_set.covers(node.layer.kind, shapes[node.name])]
        raise UncountedLayerError([f"{node.name} ({node.layer.kind})" for node in uncounted])


def _counted(architecture: Architecture, rule_set: RuleSet) -> Iterator[Counted]:
    """The nodes and their counts, in order. Raises UncountedLayerError."""
    shapes = architecture.shapes
    _check_covered(architecture, rule_set)
    only_images: dict[str, bool] = {}
    for node in architecture.nodes:
        layer, names = node.layer, node.inputs
        # Most nodes have one input; this loop is most of the time that a search spends counting.
        reads_images = only_images[names[0]] if len(names) == 1 else all(only_images[name] for name in names)
        inputs = (shapes[names[0]],) if len(names) == 1 else tuple([shapes[name] for name in names])
        operations, parameters = count_node(layer, inputs, reads_images, rule_set)
        only_images[node.name] = reads_images and layer.kind in ZERO_KINDS
        yield node, inputs, operations, parameters
