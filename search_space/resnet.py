"""The initial architecture: ResNet version 1 with bottleneck blocks (He et al. 2016, Table 1).

The stride of stages 3 to 5 is in the first 1x1 convolution, as in the original; convolutions in
front of a batch normalisation have no bias. Names follow s<stage>b<block>_<part>.
"""

from dataclasses import dataclass, field

from aiperf.errors import ArchitectureError
from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import Add, BatchNorm, Conv, Dense, GlobalAveragePool, Input, Layer, MaxPool, ReLU, Softmax

STAGE_BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
"""Blocks in stages 2 to 5 by depth (He et al. 2016, Table 1)."""

BOTTLENECK_EXPANSION = 4


@dataclass
class _Chain:
    """Nodes under construction; the next layer reads `last`."""

    nodes: list[Node] = field(default_factory=list)
    last: str = ""

    def append(self, name: str, layer: Layer, *inputs: str) -> str:
        sources = inputs or ((self.last,) if self.last else ())
        self.nodes.append(Node(name, layer, sources))
        self.last = name
        return name


def resnet(depth: int, image_size: int, classes: int) -> Architecture:
    """ResNet-50, -101 or -152 for square RGB images of `image_size` pixels.

    Raises ArchitectureError if depth, image size or number of classes is not possible.
    """
    if depth not in STAGE_BLOCKS:
        raise ArchitectureError(f"ResNet depth is {depth}; available: {', '.join(map(str, STAGE_BLOCKS))}")
    if image_size < 1:
        raise ArchitectureError(f"image size is {image_size} pixels; it must be at least 1")
    if classes < 2:
        raise ArchitectureError(f"number of classes is {classes}; it must be at least 2")
    chain = _Chain()
    chain.append("input", Input(image_size, image_size, 3))
    chain.append("conv1", Conv(64, kernel=(7, 7), stride=(2, 2)))
    chain.append("bn1", BatchNorm())
    chain.append("relu1", ReLU())
    chain.append("pool1", MaxPool(window=(3, 3), stride=(2, 2)))
    for index, blocks in enumerate(STAGE_BLOCKS[depth]):
        for block in range(1, blocks + 1):
            stride = 2 if index > 0 and block == 1 else 1
            _bottleneck(chain, f"s{index + 2}b{block}", 64 * 2**index, stride, project=block == 1)
    chain.append("gap", GlobalAveragePool())
    chain.append("fc", Dense(classes))
    chain.append("fc_softmax", Softmax())
    return Architecture(tuple(chain.nodes))


def _bottleneck(chain: _Chain, name: str, width: int, stride: int, project: bool) -> None:
    source = chain.last
    shortcut = source
    strided = (stride, stride)
    if project:
        chain.append(f"{name}_sc", Conv(width * BOTTLENECK_EXPANSION, kernel=(1, 1), stride=strided), source)
        shortcut = chain.append(f"{name}_scbn", BatchNorm())
    chain.append(f"{name}_a", Conv(width, kernel=(1, 1), stride=strided), source)
    chain.append(f"{name}_abn", BatchNorm())
    chain.append(f"{name}_arelu", ReLU())
    chain.append(f"{name}_b", Conv(width, kernel=(3, 3)))
    chain.append(f"{name}_bbn", BatchNorm())
    chain.append(f"{name}_brelu", ReLU())
    chain.append(f"{name}_c", Conv(width * BOTTLENECK_EXPANSION, kernel=(1, 1)))
    # With a scale of 0 the block begins as its shortcut alone, which large batches need to start
    # well (Goyal et al. 2017, section 5.1).
    residual = chain.append(f"{name}_cbn", BatchNorm(zero_scale=True))
    chain.append(f"{name}_add", Add(), shortcut, residual)
    chain.append(f"{name}_relu", ReLU())
