"""The networks of the scientific workloads: their layers, and all of them by name.

ResNet version 1 has bottleneck blocks in two and three dimensions (He et al. 2016, Table 1). The
stride of stages 3 to 5 is in the first 1x1 convolution, as in the original; convolutions in front
of a batch normalisation have no bias. In three dimensions every kernel, stride and window has one
more axis of the same size (HPC AI500, Jiang et al. 2019, section 3.2, asks for a ResNet on
three-dimensional matter distributions, and leaves the layers open).

Generators and discriminators follow DCGAN (Radford et al. 2015) with the layers of cosmoGAN. Their
sizes are from MustafaMustafa/cosmoGAN (256 x 256) and, with one more axis, vmos1/cosmogan_pytorch
(64 x 64 x 64).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod

from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import (
    Add,
    AveragePool,
    BatchNorm,
    Conv,
    ConvTranspose,
    Dense,
    Dropout,
    Extent,
    Flatten,
    GlobalAveragePool,
    Input,
    InputArray,
    Layer,
    LeakyReLU,
    MaxPool,
    ReLU,
    Reshape,
    Scale,
    Sigmoid,
    Softmax,
    Tanh,
    Upsample,
)
from workloads.settings import detection, generation, semi_supervised
from workloads.settings.detection import DetectionSettings
from workloads.settings.generation import GenerationSettings
from workloads.settings.semi_supervised import SemiSupervisedSettings


def cube(size: int, axes: int) -> Extent:
    """The same size along two or three axes."""
    return (size, size, size) if axes == 3 else (size, size)


@dataclass
class Chain:
    """A list of nodes; the next layer reads `last` unless it names its inputs."""

    nodes: list[Node] = field(default_factory=list)
    last: str = ""

    def append(self, name: str, layer: Layer, *inputs: str, shares: str = "") -> str:
        """Add a node and give its name."""
        sources = inputs or ((self.last,) if self.last else ())
        self.nodes.append(Node(name, layer, sources, shares))
        self.last = name
        return name

    def finished(self, heads: tuple[str, ...] = ()) -> Architecture:
        """Make the network. Raises ArchitectureError."""
        return Architecture(tuple(self.nodes), heads)


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


def cosmoflow() -> Architecture:
    """CosmoFlow on cubes of 128 x 128 x 128 x 4 (MLPerf HPC v1.0, mlcommons/hpc, cosmo.yaml)."""
    return _cosmoflow(128, 5, 32, MaxPool(cube(2, 3), cube(2, 3)), dropout=0.5)


def cosmoflow_rehearsal() -> Architecture:
    """CosmoFlow on 16 x 16 x 16 x 4: three blocks of a quarter of the width, average pooling."""
    return _cosmoflow(16, 3, 8, AveragePool(cube(2, 3), cube(2, 3)), dropout=0.0)


def _cosmoflow(size: int, blocks: int, width: int, pool: Layer, dropout: float) -> Architecture:
    chain = Chain()
    chain.append("input", InputArray((*cube(size, 3), 4)))
    for block in range(1, blocks + 1):
        filters = width * 2 ** (block - 1)
        chain.append(f"conv{block}", Conv(filters, cube(3, 3), cube(1, 3), dilation=cube(1, 3), bias=True))
        chain.append(f"conv{block}_lrelu", LeakyReLU(0.3))
        chain.append(f"pool{block}", pool)
    chain.append("flatten", Flatten())
    return _parameters(chain, dropout)


def _parameters(chain: Chain, dropout: float) -> Architecture:
    """Append the dense layers of CosmoFlow, which end in four parameters."""
    for name, units in (("fc1", 128), ("fc2", 64)):
        chain.append(name, Dense(units))
        chain.append(f"{name}_lrelu", LeakyReLU(0.3))
        if dropout:
            chain.append(f"{name}_drop", Dropout(dropout))
    chain.append("fc3", Dense(4))
    chain.append("fc3_tanh", Tanh())
    chain.append("scale", Scale(PARAMETER_RANGE))
    return chain.finished()


def hepcnn(size: int) -> Architecture:
    """The HEP network on jet images of `size` x `size` x 3 (Kurth et al. 2017; NERSC's code)."""
    return _hepcnn(size, blocks=4, filters=128, dropout=0.5)


def hepcnn_rehearsal() -> Architecture:
    """The HEP network on 32 x 32 x 3: one block less, a quarter of the width, no dropout."""
    return _hepcnn(32, blocks=3, filters=32, dropout=0.0)


def _hepcnn(size: int, blocks: int, filters: int, dropout: float) -> Architecture:
    chain = Chain()
    chain.append("input", Input(size, size, 3))
    for block in range(1, blocks + 1):
        chain.append(f"conv{block}", Conv(filters, bias=True))
        chain.append(f"conv{block}_relu", ReLU())
        chain.append(f"pool{block}", MaxPool())
        if dropout:
            chain.append(f"drop{block}", Dropout(dropout))
    last = blocks + 1
    chain.append(f"conv{last}", Conv(filters, bias=True))
    chain.append(f"conv{last}_relu", ReLU())
    chain.append("gap", GlobalAveragePool())
    chain.append("fc", Dense(2))
    chain.append("fc_softmax", Softmax())
    return chain.finished()


def generator(settings: GenerationSettings) -> Architecture:
    """The generator: latent numbers to one channel of `size` along each axis."""
    axes, layers = settings.axes, settings.layers
    widest = settings.width * 2 ** (layers - 1)
    chain = Chain()
    start = (*cube(settings.size // 2**layers, axes), widest)
    chain.append("input", InputArray((settings.latent,)))
    chain.append("fc", Dense(prod(start)))
    chain.append("reshape", Reshape(start))
    chain.append("bn0", BatchNorm())
    chain.append("relu0", ReLU())
    for layer in range(1, layers):
        filters = widest // 2**layer
        chain.append(f"up{layer}", ConvTranspose(filters, cube(5, axes), cube(2, axes), bias=True))
        chain.append(f"bn{layer}", BatchNorm())
        chain.append(f"relu{layer}", ReLU())
    chain.append(f"up{layers}", ConvTranspose(1, cube(5, axes), cube(2, axes), bias=True))
    chain.append("tanh", Tanh())
    return chain.finished()


def discriminator(settings: GenerationSettings) -> Architecture:
    """The discriminator: one channel of `size` along each axis to its probability to be real."""
    axes = settings.axes
    chain = Chain()
    chain.append("input", InputArray((*cube(settings.size, axes), 1)))
    for layer in range(settings.layers):
        filters = settings.width * 2**layer
        name = f"conv{layer + 1}"
        chain.append(name, Conv(filters, cube(5, axes), cube(2, axes), dilation=cube(1, axes), bias=True))
        # The first layer has none (Radford et al. 2015, section 3).
        if layer > 0:
            chain.append(f"bn{layer + 1}", BatchNorm())
        chain.append(f"lrelu{layer + 1}", LeakyReLU(0.2))
    chain.append("flatten", Flatten())
    chain.append("fc", Dense(1))
    chain.append("fc_sigmoid", Sigmoid())
    return chain.finished()


def climate_semi(settings: SemiSupervisedSettings = semi_supervised.OFFICIAL) -> Architecture:
    """Make encoder, decoder and four heads on images of 16 channels (Kurth et al. 2017).

    Outputs are class, object, offset and size of every cell, then the reconstruction. Heads and
    their order: NERSC/climate-caffe.
    """
    chain = Chain()
    chain.append("input", Input(*settings.image, settings.channels))
    for index, (filters, kernel) in enumerate(settings.encoder, 1):
        chain.append(f"enc{index}", Conv(filters, cube(kernel, 2), (2, 2), bias=True))
        chain.append(f"enc{index}_relu", ReLU())
    code = chain.last
    widths = (("class", settings.classes), ("object", 2), ("xy", 2), ("wh", 2))
    heads = tuple(chain.append(name, Conv(filters, bias=True), code) for name, filters in widths)
    chain.last = code
    for index, (filters, kernel) in enumerate(settings.decoder, 1):
        chain.append(f"dec{index}", ConvTranspose(filters, cube(kernel, 2), (2, 2), bias=True))
    return chain.finished(heads)


def faster_rcnn_body(settings: DetectionSettings = detection.OFFICIAL) -> Architecture:
    """Make trunk, pyramid and region proposals on images of 16 channels.

    Ren et al. 2015, section 3.1, on the pyramid of Lin et al. 2017, sections 3 and 4.1. Outputs are
    the levels that regions are cut from, then objectness and shifts of every level.
    """
    chain = Chain()
    chain.append("input", Input(*settings.image, settings.channels))
    stages = small_trunk(chain, settings.blocks) if settings.blocks else trunk(chain, 2)
    levels = _pyramid(chain, stages, settings)
    heads = levels[: settings.region_levels]
    for number, level in enumerate(levels, 2):
        # One head for all levels (Lin et al. 2017, section 4.1): later levels share the weights of
        # P2's.
        later = number > 2

        def shared(part: str, filters: int, kernel: int, source: str, later: bool = later, number: int = number) -> str:
            layer = Conv(filters, cube(kernel, 2), bias=True)
            return chain.append(f"{part}{number}", layer, source, shares=f"{part}2" if later else "")

        shared("rpn", settings.pyramid, 3, level)
        hidden = chain.append(f"rpn{number}_relu", ReLU())
        shared("object", len(settings.ratios), 1, hidden)
        heads.append(chain.append(f"object{number}_sigmoid", Sigmoid()))
        heads.append(shared("delta", 4 * len(settings.ratios), 1, hidden))
    # The last node is the architecture's output, and the heads are its further ones.
    return chain.finished(tuple(heads[:-1]))


def _pyramid(chain: Chain, stages: list[str], settings: DetectionSettings) -> list[str]:
    """Append the levels from P2 on; give their names.

    A level beyond those of the stages is the last one with every second cell (Lin et al. 2017,
    section 4.1).
    """
    levels: list[str] = []
    above = ""
    for number in range(len(stages) + 1, 1, -1):
        side = chain.append(f"side{number}", Conv(settings.pyramid, (1, 1), bias=True), stages[number - 2])
        if above:
            larger = chain.append(f"up{number}", Upsample(), above)
            side = chain.append(f"sum{number}", Add(), side, larger)
        above = side
        levels.insert(0, chain.append(f"p{number}", Conv(settings.pyramid, bias=True), side))
    for number in range(len(levels) + 2, len(settings.strides) + 2):
        levels.append(chain.append(f"p{number}", MaxPool((1, 1), (2, 2)), levels[-1]))
    return levels


def faster_rcnn_head(regions: int, settings: DetectionSettings = detection.OFFICIAL) -> Architecture:
    """Make the head for class and box of `regions` regions (Lin et al. 2017, section 4.2)."""
    chain = Chain()
    chain.append("input", InputArray((regions, settings.bins**2 * settings.pyramid)))
    for name in ("fc1", "fc2"):
        chain.append(name, Dense(settings.hidden))
        chain.append(f"{name}_relu", ReLU())
    hidden = chain.last
    boxes = chain.append("box", Dense(4 * settings.classes), hidden)
    chain.append("class", Dense(settings.classes + 1), hidden)
    chain.append("class_softmax", Softmax())
    return chain.finished((boxes,))


NETWORKS: Mapping[str, Callable[[], Architecture]] = {
    "resnet-hep": resnet_hep,
    "resnet-cos": resnet_cos,
    "cosmoflow": cosmoflow,
    "frcnn-ewa/body": faster_rcnn_body,
    "frcnn-ewa/head-512": partial(faster_rcnn_head, 512),
    "frcnn-ewa/head-1000": partial(faster_rcnn_head, 1000),
    "dcgan-cos/generator": partial(generator, generation.OFFICIAL),
    "dcgan-cos/discriminator": partial(discriminator, generation.OFFICIAL),
    "cosmogan/generator": partial(generator, generation.FLAT),
    "cosmogan/discriminator": partial(discriminator, generation.FLAT),
    "hepcnn": partial(hepcnn, 224),
    "hepcnn-64": partial(hepcnn, 64),
    "climate-semi": climate_semi,
}
"""Networks at their official sizes, by name. All are counted by rule set `science-1`."""

REHEARSAL: Mapping[str, Callable[[], Architecture]] = {
    "frcnn-ewa/body": partial(faster_rcnn_body, detection.REHEARSAL),
    "frcnn-ewa/head": partial(faster_rcnn_head, detection.REHEARSAL.regions.total, detection.REHEARSAL),
    "dcgan-cos/generator": partial(generator, generation.REHEARSAL),
    "dcgan-cos/discriminator": partial(discriminator, generation.REHEARSAL),
    "climate-semi": partial(climate_semi, semi_supervised.REHEARSAL),
}
"""Networks at sizes that train in a minute on two cores, by name."""
