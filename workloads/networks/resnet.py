"""ResNet version 1 with bottleneck blocks in two and three dimensions (He et al. 2016, Table 1).

The stride of stages 3 to 5 is in the first 1x1 convolution, as in the original; convolutions in
front of a batch normalisation have no bias. In three dimensions every kernel, stride and window
has one more axis of the same size (HPC AI500, Jiang et al. 2019, section 3.2, asks for a ResNet on
three-dimensional matter distributions, and leaves the layers open).
"""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.network.architecture import Architecture
from aiperf.network.layers import (
    Add,
    BatchNorm,
    Conv,
    Dense,
    Extent,
    GlobalAveragePool,
    Input,
    InputArray,
    MaxPool,
    ReLU,
    Scale,
    Softmax,
    Tanh,
)
from workloads.networks.chain import Chain, cube

BLOCKS = (3, 4, 6, 3)
"""Numbers of bottlenecks in stages 2 to 5 of ResNet-50."""

EXPANSION = 4

PARAMETER_RANGE = 1.2
"""Range of the outputs, beyond the parameters' [-1, 1], so that tanh does not saturate at its ends
(CosmoFlow in MLPerf HPC, mlcommons/hpc)."""


def trunk(chain: Chain, axes: int) -> list[str]:
    """Append stages 1 to 5; give the names of the outputs of stages 2 to 5."""
    _stem(chain, 64, cube(7, axes), cube(2, axes))
    chain.append("pool1", MaxPool(cube(3, axes), cube(2, axes)))
    return _stages(chain, BLOCKS, 64, axes)


def _small_trunk(chain: Chain, width: int, axes: int) -> None:
    """Append the stages of a rehearsal: one bottleneck each, behind a stem that keeps the size."""
    _stem(chain, width, cube(3, axes), cube(1, axes))
    _stages(chain, (1, 1, 1, 1), width, axes)


def _stem(chain: Chain, filters: int, kernel: Extent, stride: Extent) -> None:
    chain.append("conv1", Conv(filters, kernel, stride, dilation=cube(1, len(kernel))))
    chain.append("bn1", BatchNorm())
    chain.append("relu1", ReLU())


def _stages(chain: Chain, blocks: Sequence[int], width: int, axes: int) -> list[str]:
    ends = []
    for index, count in enumerate(blocks):
        for block in range(1, count + 1):
            stride = 2 if index > 0 and block == 1 else 1
            bottleneck(chain, f"s{index + 2}b{block}", width * 2**index, cube(stride, axes), project=block == 1)
        ends.append(chain.last)
    return ends


def bottleneck(chain: Chain, name: str, width: int, stride: tuple[int, ...], project: bool) -> None:
    """Append a bottleneck block; `project` gives its shortcut a convolution."""
    axes = len(stride)
    source = shortcut = chain.last

    def conv(part: str, filters: int, kernel: int, strided: bool, *inputs: str) -> None:
        steps = cube(stride[0] if strided else 1, axes)
        chain.append(f"{name}_{part}", Conv(filters, cube(kernel, axes), steps, dilation=cube(1, axes)), *inputs)

    if project:
        conv("sc", width * EXPANSION, 1, True, source)
        shortcut = chain.append(f"{name}_scbn", BatchNorm())
    conv("a", width, 1, True, source)
    chain.append(f"{name}_abn", BatchNorm())
    chain.append(f"{name}_arelu", ReLU())
    conv("b", width, 3, False)
    chain.append(f"{name}_bbn", BatchNorm())
    chain.append(f"{name}_brelu", ReLU())
    conv("c", width * EXPANSION, 1, False)
    residual = chain.append(f"{name}_cbn", BatchNorm(zero_scale=True))
    chain.append(f"{name}_add", Add(), shortcut, residual)
    chain.append(f"{name}_relu", ReLU())


def small_trunk(chain: Chain, filters: tuple[int, ...]) -> list[str]:
    """Append a 3 x 3 stem and a basic block for each number of filters; give the blocks' names.

    The stem has the filters of the first block. Stem and blocks have stride 2, and every shortcut
    is a convolution (He et al. 2016, Figure 5 left, and option B).
    """
    chain.append("conv1", Conv(filters[0], cube(3, 2), cube(2, 2)))
    chain.append("bn1", BatchNorm())
    chain.append("relu1", ReLU())
    return [basic_block(chain, f"s{number}", width) for number, width in enumerate(filters, 2)]


def basic_block(chain: Chain, name: str, filters: int) -> str:
    """Append two 3 x 3 convolutions, of stride 2, with a projected shortcut; give the output."""
    source = chain.last
    chain.append(f"{name}_sc", Conv(filters, cube(1, 2), cube(2, 2)))
    shortcut = chain.append(f"{name}_scbn", BatchNorm())
    chain.append(f"{name}_a", Conv(filters, cube(3, 2), cube(2, 2)), source)
    chain.append(f"{name}_abn", BatchNorm())
    chain.append(f"{name}_arelu", ReLU())
    chain.append(f"{name}_b", Conv(filters, cube(3, 2)))
    residual = chain.append(f"{name}_bbn", BatchNorm(zero_scale=True))
    chain.append(f"{name}_add", Add(), shortcut, residual)
    return chain.append(f"{name}_relu", ReLU())


def resnet_hep() -> Architecture:
    """ResNet-50 on jet images of 64 x 64 x 3, for signal or background."""
    chain = Chain()
    chain.append("input", Input(64, 64, 3))
    trunk(chain, 2)
    return _classifier(chain)


def resnet_hep_rehearsal() -> Architecture:
    """ResNet on jet images of 32 x 32 x 3, with four bottlenecks and a quarter of the width."""
    chain = Chain()
    chain.append("input", Input(32, 32, 3))
    _small_trunk(chain, 16, 2)
    return _classifier(chain)


def _classifier(chain: Chain) -> Architecture:
    chain.append("gap", GlobalAveragePool())
    chain.append("fc", Dense(2))
    chain.append("fc_softmax", Softmax())
    return chain.finished()


def resnet_cos() -> Architecture:
    """ResNet-50 in three dimensions on cubes of 128 x 128 x 128 x 4, for four parameters."""
    chain = Chain()
    chain.append("input", InputArray((128, 128, 128, 4)))
    trunk(chain, 3)
    return _regressor(chain)


def resnet_cos_rehearsal() -> Architecture:
    """ResNet on cubes of 16 x 16 x 16 x 4, with four bottlenecks and an eighth of the width."""
    chain = Chain()
    chain.append("input", InputArray((16, 16, 16, 4)))
    _small_trunk(chain, 8, 3)
    return _regressor(chain)


def _regressor(chain: Chain) -> Architecture:
    chain.append("gap", GlobalAveragePool())
    chain.append("fc", Dense(4))
    chain.append("fc_tanh", Tanh())
    chain.append("scale", Scale(PARAMETER_RANGE))
    return chain.finished()
