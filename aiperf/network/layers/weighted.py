"""Layers with weights: convolutions, fully connected layers, batch normalisation."""

from dataclasses import dataclass
from typing import ClassVar

from aiperf.network.layers.contract import (
    Extent,
    Layer,
    Padding,
    Shape,
    ShapeError,
    features,
    grid,
    one_rank,
    positive,
    windows,
)

BATCHNORM_MOMENTUM = 0.9
BATCHNORM_EPSILON = 1e-5
"""Epsilon of every batch normalisation, in training and wherever an identity has to undo it."""


@dataclass(frozen=True, slots=True)
class Conv(Layer):
    """Convolution over the axes of an image or a volume.

    It is depthwise with `groups` equal to the input channels. `tunable_kernel` marks a
    kernel whose size is a hyperparameter.
    """

    kind: ClassVar[str] = "conv"
    has_kernel: ClassVar[bool] = True
    kept_for_backward: ClassVar[bool] = True
    filters: int
    kernel: Extent = (3, 3)
    stride: Extent = (1, 1)
    padding: Padding = "same"
    dilation: Extent = (1, 1)
    groups: int = 1
    bias: bool = False
    tunable_kernel: bool = False

    def __post_init__(self) -> None:
        positive(filters=self.filters, kernel=self.kernel, stride=self.stride)
        positive(dilation=self.dilation, groups=self.groups)
        one_rank(kernel=self.kernel, stride=self.stride, dilation=self.dilation)
        if self.filters % self.groups:
            raise ValueError(f"filters is {self.filters}; it must be a multiple of groups ({self.groups})")

    def output_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """Output sizes along the axes, and filters."""
        sizes = grid(inputs, len(self.kernel))[:-1]
        reach = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]
        return (*windows(sizes, reach, self.stride, self.padding), self.filters)

    def weight_shapes(self, inputs: tuple[Shape, ...]) -> dict[str, Shape]:
        """Kernel (K..., Ci / groups, Co) and, with `bias`, (Co,)."""
        channels = grid(inputs, len(self.kernel))[-1]
        if channels % self.groups:
            raise ShapeError(f"{channels} input channels are not a multiple of groups ({self.groups})")
        shapes: dict[str, Shape] = {"kernel": (*self.kernel, channels // self.groups, self.filters)}
        if self.bias:
            shapes["bias"] = (self.filters,)
        return shapes


@dataclass(frozen=True, slots=True)
class ConvTranspose(Layer):
    """Transposed convolution with "same" padding: the input gradient of a convolution."""

    kind: ClassVar[str] = "convtranspose"
    has_kernel: ClassVar[bool] = True
    kept_for_backward: ClassVar[bool] = True
    filters: int
    kernel: Extent = (3, 3)
    stride: Extent = (2, 2)
    bias: bool = False

    def __post_init__(self) -> None:
        positive(filters=self.filters, kernel=self.kernel, stride=self.stride)
        one_rank(kernel=self.kernel, stride=self.stride)

    def output_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """Input sizes times strides, and filters."""
        sizes = grid(inputs, len(self.kernel))[:-1]
        return (*(size * stride for size, stride in zip(sizes, self.stride, strict=True)), self.filters)

    def weight_shapes(self, inputs: tuple[Shape, ...]) -> dict[str, Shape]:
        """Kernel (K..., Co, Ci) and, with `bias`, (Co,)."""
        channels = grid(inputs, len(self.kernel))[-1]
        shapes: dict[str, Shape] = {"kernel": (*self.kernel, self.filters, channels)}
        if self.bias:
            shapes["bias"] = (self.filters,)
        return shapes


@dataclass(frozen=True, slots=True)
class Dense(Layer):
    """Fully connected layer on a flat input, or on each region of an image."""

    kind: ClassVar[str] = "dense"
    has_kernel: ClassVar[bool] = True
    units: int
    bias: bool = True

    def __post_init__(self) -> None:
        positive(units=self.units)

    def output_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """(units,) or (regions, units)."""
        return (*features(inputs)[:-1], self.units)

    def weight_shapes(self, inputs: tuple[Shape, ...]) -> dict[str, Shape]:
        """Kernel (Ci, Co) and, with `bias`, (Co,)."""
        shapes: dict[str, Shape] = {"kernel": (features(inputs)[-1], self.units)}
        if self.bias:
            shapes["bias"] = (self.units,)
        return shapes


@dataclass(frozen=True, slots=True)
class BatchNorm(Layer):
    """Batch normalisation over the channels.

    `zero_scale` starts the scale at 0, so that a residual block begins as the identity
    (Goyal et al. 2017, section 5.1); it changes the initial weights only.
    """

    kind: ClassVar[str] = "batchnorm"
    keeps_channels: ClassVar[bool] = True
    zero_scale: bool = False

    def weight_shapes(self, inputs: tuple[Shape, ...]) -> dict[str, Shape]:
        """Scale, shift, moving mean and moving variance, each (C,)."""
        channels = (inputs[0][-1],)
        return {"gamma": channels, "beta": channels, "moving_mean": channels, "moving_variance": channels}
