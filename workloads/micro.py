"""The micro suite: single operators, with their shapes, operations and bytes.

HPC AI500 (Jiang et al. 2019, section 3.4 and Table 4) names the operators convolution, pooling and
fully connected on dense two-dimensional, sparse two-dimensional and three-dimensional data.

The shapes are those of the networks that are trained on each kind of data. dense2d: climate images
of 768 x 1152 x 16 and layers of Faster R-CNN on them. sparse2d: jet images and layers of the HEP
networks. dense3d: cubes of matter and layers of CosmoFlow and DCGAN. The case `published` is that
of the first published code (BenchCouncil, HPC AI500 v1, README).
"""

from dataclasses import dataclass
from math import prod
from typing import Literal

from aiperf.network.operations import ADD, COMPARE, DIVIDE, MULTIPLY_ACCUMULATE

Shape = tuple[int, ...]
Operator = Literal["conv", "maxpool", "averagepool", "fc", "gemm", "triad"]
Direction = Literal["forward", "input", "weights"]


@dataclass(frozen=True, slots=True)
class Case:
    """An operator on one shape of data.

    Convolutions have "same" padding (the larger half behind), poolings have none. `sizes` are those
    along the axes of the image or volume, without channels; a fully connected layer has none.
    """

    operator: Operator
    kind: str
    channels: int
    sizes: Shape = ()
    filters: int = 0
    kernel: Shape = ()
    stride: Shape = ()

    @property
    def has_weights(self) -> bool:
        """True if the operator has a weight matrix, and so a gradient of it."""
        return self.operator in ("conv", "fc", "gemm")

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The passes that are measured, each alone."""
        if self.operator in ("gemm", "triad"):
            return ("forward",)
        return ("forward", "input", "weights") if self.has_weights else ("forward", "input")

    @property
    def outputs(self) -> Shape:
        """The sizes of the output along the axes."""
        if self.operator == "conv":
            return tuple(-(-size // step) for size, step in zip(self.sizes, self.stride, strict=True))
        axes = zip(self.sizes, self.kernel, self.stride, strict=True)
        return tuple((size - window) // step + 1 for size, window, step in axes)

    @property
    def padding(self) -> tuple[tuple[int, int], ...]:
        """The zeros before and after each axis of a convolution."""
        pairs = []
        for size, window, step, output in zip(self.sizes, self.kernel, self.stride, self.outputs, strict=True):
            # TensorFlow's "SAME": an odd zero goes behind.
            whole = max((output - 1) * step + window - size, 0)
            pairs.append((whole // 2, whole - whole // 2))
        return tuple(pairs)

    @property
    def input_shape(self) -> Shape:
        """The shape of one image: (sizes..., channels)."""
        return (*self.sizes, self.channels)

    @property
    def output_shape(self) -> Shape:
        """The shape of the output of one image: (sizes..., channels)."""
        return (*self.outputs, self.filters if self.has_weights else self.channels)

    @property
    def weight_shape(self) -> Shape:
        """The shape of the weights: (K..., Ci, Co), or () without any."""
        return (*self.kernel, self.channels, self.filters) if self.has_weights else ()

    @property
    def text(self) -> str:
        """The shape in words, such as 64x64x3 3x3 64 /2."""
        words = ["x".join(map(str, self.input_shape))]
        if self.kernel:
            words.append("x".join(map(str, self.kernel)))
        if self.has_weights:
            words.append(f"-> {self.filters}")
        if self.stride and max(self.stride) > 1:
            words.append(f"/{max(self.stride)}")
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Work:
    """One pass of a case over a batch."""

    case: Case
    direction: Direction
    batch: int

    @property
    def operand_shapes(self) -> tuple[Shape, ...]:
        """The shapes of the arrays that the pass reads.

        forward: input, weights; input: gradient of the output, weights; weights: input, gradient of
        the output. The gradient of a max-pooling reads its input too, a triad two vectors.
        """
        case = self.case
        images, outputs = (self.batch, *case.input_shape), (self.batch, *case.output_shape)
        if case.operator == "triad":
            return (case.input_shape, case.input_shape)
        weights = (case.weight_shape,) if case.has_weights else ()
        if self.direction == "forward":
            return (images, *weights)
        if self.direction == "weights":
            return (images, outputs)
        return (images, outputs) if case.operator == "maxpool" else (outputs, *weights)

    @property
    def result_shape(self) -> Shape:
        """The shape of the array that the pass writes."""
        case = self.case
        if case.operator == "triad":
            return case.input_shape
        if self.direction == "weights":
            return case.weight_shape
        return (self.batch, *(case.output_shape if self.direction == "forward" else case.input_shape))

    @property
    def operations(self) -> int:
        """The operations of one call, by the weights of rule set science-1.

        Every pass of a convolution or a fully connected layer needs the same multiply-accumulates;
        the gradient of a pooling writes each element of the input once.
        """
        case = self.case
        if case.operator == "triad":
            return MULTIPLY_ACCUMULATE * prod(case.input_shape)
        if case.has_weights:
            return MULTIPLY_ACCUMULATE * self.batch * prod(case.outputs) * prod(case.weight_shape)
        if self.direction == "input":
            return self.batch * prod(case.input_shape)
        cost = COMPARE * prod(case.kernel) if case.operator == "maxpool" else ADD * prod(case.kernel) + DIVIDE
        return cost * self.batch * prod(case.output_shape)

    @property
    def elements(self) -> int:
        """The number of elements of all operands and of the result, once each."""
        return sum(map(prod, self.operand_shapes)) + prod(self.result_shape)

    def bytes(self, item_size: int) -> int:
        """The bytes of all operands and of the result, once each, for elements of that size."""
        return self.elements * item_size


CEILING = "ceiling"
"""Kind of the cases that bound all others."""


def gemm(size: int) -> Case:
    """Make the product of two square matrices, with the first as a batch of `size` vectors."""
    return Case("gemm", CEILING, channels=size, filters=size)


def triad(elements: int) -> Case:
    """Make the triad a = b + s c on vectors (McCalpin 1995, STREAM)."""
    return Case("triad", CEILING, channels=elements)


TRIAD_FACTOR = 3.0
"""Factor s of the triad, as in STREAM."""


KINDS = ("dense2d", "sparse2d", "dense3d")
OPERATORS = ("conv", "pool", "fc")


def _conv(kind: str, size: Shape, kernel: int, filters: int, stride: int = 1) -> Case:
    *sizes, channels = size
    axes = len(sizes)
    return Case("conv", kind, channels, tuple(sizes), filters, (kernel,) * axes, (stride,) * axes)


def _pools(kind: str, size: Shape, window: int, stride: int) -> tuple[Case, Case]:
    *sizes, channels = size
    shape = (channels, tuple(sizes), 0, (window,) * len(sizes), (stride,) * len(sizes))
    return Case("maxpool", kind, *shape), Case("averagepool", kind, *shape)


def _dense(kind: str, inputs: int, outputs: int) -> Case:
    return Case("fc", kind, inputs, filters=outputs)


SUITE: tuple[Case, ...] = (
    _conv("dense2d", (48, 72, 256), 3, 256),
    _conv("dense2d", (768, 1152, 16), 7, 64, 2),
    _conv("dense2d", (192, 288, 64), 3, 64),
    _conv("dense2d", (24, 36, 2048), 1, 512),
    _conv("dense2d", (768, 1152, 16), 2, 1),
    _conv("sparse2d", (64, 64, 3), 3, 64),
    _conv("sparse2d", (224, 224, 3), 3, 128),
    _conv("sparse2d", (112, 112, 128), 3, 128),
    _conv("sparse2d", (28, 28, 128), 3, 128),
    _conv("dense3d", (16, 16, 16, 128), 3, 256),
    _conv("dense3d", (128, 128, 128, 4), 3, 32),
    _conv("dense3d", (64, 64, 64, 32), 3, 64),
    _conv("dense3d", (64, 64, 64, 1), 5, 64, 2),
    *_pools("dense2d", (384, 576, 64), 3, 2),
    *_pools("dense2d", (768, 1152, 16), 2, 2),
    *_pools("dense2d", (768, 1152, 16), 5, 1),
    *_pools("sparse2d", (64, 64, 3), 2, 2),
    *_pools("sparse2d", (224, 224, 128), 2, 2),
    *_pools("dense3d", (16, 16, 16, 128), 2, 2),
    *_pools("dense3d", (128, 128, 128, 32), 2, 2),
    _dense("dense2d", 7 * 7 * 256, 1024),
    _dense("dense2d", 768 * 1152 * 16, 16),
    _dense("sparse2d", 12_288, 512),
    _dense("sparse2d", 128, 2),
    _dense("dense3d", 32_768, 128),
)


def selected(operators: tuple[str, ...], kinds: tuple[str, ...], quick: bool) -> tuple[Case, ...]:
    """The cases of these operators and kinds; quick: the first of every operator and kind."""
    found = [case for case in SUITE if group(case) in operators and case.kind in kinds]
    if quick:
        # In reverse, the first case of each operator and kind is the last to be entered, and stays.
        found = list({(case.operator, case.kind): case for case in reversed(found)}.values())[::-1]
    return tuple(found)


def group(case: Case) -> str:
    """`pool` for both poolings, else the operator."""
    return "pool" if case.operator.endswith("pool") else case.operator
