"""Networks that find extreme weather: the encoder-decoder of 15PF, and Faster R-CNN."""

from __future__ import annotations

from aiperf.network.architecture import Architecture
from aiperf.network.layers import (
    Add,
    Conv,
    ConvTranspose,
    Dense,
    Input,
    InputArray,
    MaxPool,
    ReLU,
    Sigmoid,
    Softmax,
    Upsample,
)
from workloads.networks.chain import Chain, cube
from workloads.networks.resnet import small_trunk, trunk
from workloads.settings import semi_supervised
from workloads.settings.detection import OFFICIAL, DetectionSettings
from workloads.settings.semi_supervised import SemiSupervisedSettings


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


def faster_rcnn_body(settings: DetectionSettings = OFFICIAL) -> Architecture:
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


def faster_rcnn_head(regions: int, settings: DetectionSettings = OFFICIAL) -> Architecture:
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
