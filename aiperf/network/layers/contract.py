"""The base of all layer types, and the shapes that they take.

A shape is (height, width, channels) for images, (depth, height, width, channels) for volumes,
(channels,) for vectors and (regions, channels) for the regions of an image; the batch is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

Shape = tuple[int, ...]
Pair = tuple[int, int]
Extent = tuple[int, int] | tuple[int, int, int]
"""Sizes along the axes of an image or of a volume."""
Padding = Literal["same", "valid"]


class ShapeError(ValueError):
    """A layer cannot take the shapes it is given."""


def positive(**values: int | tuple[int, ...]) -> None:
    """Raise ValueError naming the first value that is below 1."""
    for name, value in values.items():
        numbers = value if isinstance(value, tuple) else (value,)
        if any(number < 1 for number in numbers):
            raise ValueError(f"{name} is {value}; it must be at least 1")


def grid(inputs: tuple[Shape, ...], axes: int) -> Shape:
    """The only input: an image (2 axes) or a volume (3). Raises ShapeError."""
    (shape,) = inputs
    if len(shape) != axes + 1:
        wanted = "height x width x channels" if axes == 2 else "depth x height x width x channels"
        raise ShapeError(f"needs an input of {wanted}, got shape {shape}")
    return shape


def features(inputs: tuple[Shape, ...]) -> Shape:
    """The only input: a vector, or one vector a region. Raises ShapeError."""
    (shape,) = inputs
    if len(shape) not in (1, 2):
        raise ShapeError(f"needs a flat input of shape (channels,), got shape {shape}")
    return shape


def any_grid(inputs: tuple[Shape, ...]) -> Shape:
    """The only input, which is an image or a volume. Raises ShapeError."""
    return grid(inputs, 3 if len(inputs[0]) == 4 else 2)


def one_rank(**values: tuple[int, ...]) -> None:
    """Raise ValueError unless all values have the same number of axes."""
    if len({len(value) for value in values.values()}) > 1:
        raise ValueError(f"{', '.join(values)} must have the same number of axes")


def window_output(size: int, window: int, stride: int, padding: Padding) -> int:
    """Outputs of a sliding window along one axis (TensorFlow's "same" and "valid" conventions).

    Raises ShapeError if a "valid" window is larger than the input.
    """
    if padding == "same":
        return -(-size // stride)
    if window > size:
        raise ShapeError(f'a "valid" window of {window} does not fit an input of {size}')
    return (size - window) // stride + 1


def windows(sizes: Shape, reach: Sequence[int], stride: Sequence[int], padding: Padding) -> Shape:
    """Outputs of a sliding window along all axes. Raises ShapeError."""
    return tuple(window_output(*axis, padding) for axis in zip(sizes, reach, stride, strict=True))


@dataclass(frozen=True, slots=True)
class Layer:
    """Base of all layers.

    The class variables say what a kind of layer is, for every room that needs to know.
    """

    kind: ClassVar[str] = ""
    """Name in JSON and in the operation count."""
    arity: ClassVar[tuple[int, int | None]] = (1, 1)
    """Fewest and most inputs (None: any number)."""
    counts_zero: ClassVar[bool] = False
    """True if the rules count no operations for it, as for a copy or a change of shape."""
    keeps_channels: ClassVar[bool] = False
    """True if each output channel comes from the input channel of the same number."""
    commutes: ClassVar[bool] = False
    """The order of the inputs does not matter."""
    has_kernel: ClassVar[bool] = False
    """True if it has a weight matrix, and counts towards the depth of a network."""
    kept_for_backward: ClassVar[bool] = False
    """The backward pass needs its output: the input of a normalisation or of a convolution."""
    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid"}

    def output_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """Shape of the output. Raises ShapeError if the inputs do not fit."""
        return inputs[0]

    def weight_shapes(self, inputs: tuple[Shape, ...]) -> dict[str, Shape]:
        """Shapes of the weights by name, in the order in which Keras keeps them."""
        return {}
