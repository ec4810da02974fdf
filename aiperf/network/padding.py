"""Multiplications with padding zeros: the term by which XLA's count lies below the analytical one.

The rules charge a convolution for every position of its kernel over every output (paper, Table 1).
If a kernel hangs over the edge of the image it multiplies zeros, and XLA's cost analysis leaves
those positions out.
"""

from math import prod

from aiperf.network.architecture import Architecture
from aiperf.network.layers import Conv
from aiperf.network.operations import MULTIPLY_ACCUMULATE


def padding_operations(architecture: Architecture) -> int:
    """Forward operations per image of all convolutions that meet padding zeros."""
    total = 0
    for node in architecture.nodes:
        layer = node.layer
        if isinstance(layer, Conv) and layer.padding == "same":
            *sizes, channels = architecture.input_shapes(node)[0]
            axes = [_positions(*axis) for axis in zip(sizes, layer.kernel, layer.stride, layer.dilation, strict=True)]
            hanging = prod(every for every, _ in axes) - prod(inside for _, inside in axes)
            total += MULTIPLY_ACCUMULATE * hanging * (channels // layer.groups) * layer.filters
    return total


def _positions(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """Along one axis: pairs of output and kernel position, and those of them inside the image."""
    outputs = -(-size // stride)
    reach = (kernel - 1) * dilation + 1
    # As TensorFlow pads: of an odd number of zeros the one more is behind the image.
    before = max((outputs - 1) * stride + reach - size, 0) // 2
    inside = sum(
        0 <= output * stride + offset * dilation - before < size
        for output in range(outputs)
        for offset in range(kernel)
    )
    return outputs * kernel, inside
