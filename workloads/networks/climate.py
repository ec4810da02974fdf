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
from workloads.networks.resnet import trunk

CHANNELS = 16
"""Physical quantities of a climate image (HPC AI500, section 3.2)."""

ENCODER = ((96, 7), (256, 7), (512, 7), (768, 7), (1024, 4))
DECODER = ((768, 4), (512, 7), (256, 7), (96, 7), (CHANNELS, 7))
HEADS = (("class", 4), ("object", 2), ("xy", 2), ("wh", 2))
"""Filters and kernels: NERSC/climate-caffe."""

PYRAMID = 256
"""Channels of every level of the pyramid (Lin et al. 2017, section 3)."""

ANCHORS = 3
CLASSES = 4
HIDDEN = 1024
BINS = 7


def climate_semi() -> Architecture:
    """Encoder, decoder and four heads on images of 768 x 768 x 16 (Kurth et al. 2017)."""
    chain = Chain()
    chain.append("input", Input(768, 768, CHANNELS))
    for index, (filters, kernel) in enumerate(ENCODER, 1):
        chain.append(f"enc{index}", Conv(filters, cube(kernel, 2), (2, 2), bias=True))
        chain.append(f"enc{index}_relu", ReLU())
    code = chain.last
    heads = tuple(chain.append(name, Conv(filters, bias=True), code) for name, filters in HEADS)
    chain.last = code
    for index, (filters, kernel) in enumerate(DECODER, 1):
        chain.append(f"dec{index}", ConvTranspose(filters, cube(kernel, 2), (2, 2), bias=True))
    return chain.finished(heads)


def faster_rcnn_body() -> Architecture:
    """ResNet-50, pyramid and region proposals on images of 768 x 1152 x 16.

    Ren et al. 2015, section 3.1, on the pyramid of Lin et al. 2017, sections 3 and 4.1.
    """
    chain = Chain()
    chain.append("input", Input(768, 1152, CHANNELS))
    levels = _pyramid(chain, trunk(chain, 2))
    heads: list[str] = []
    for index, level in enumerate(levels):
        owner = index > 0

        def shared(part: str, filters: int, kernel: int, source: str, later: bool = owner, number: int = index) -> str:
            layer = Conv(filters, cube(kernel, 2), bias=True)
            return chain.append(f"{part}{number + 2}", layer, source, shares=f"{part}2" if later else "")

        shared("rpn", PYRAMID, 3, level)
        hidden = chain.append(f"rpn{index + 2}_relu", ReLU())
        shared("object", ANCHORS, 1, hidden)
        heads.append(chain.append(f"object{index + 2}_sigmoid", Sigmoid()))
        heads.append(shared("delta", 4 * ANCHORS, 1, hidden))
    return chain.finished((*levels[:-1], *heads[:-1]))


def _pyramid(chain: Chain, stages: list[str]) -> list[str]:
    """Append the levels P2 to P6; their names."""
    levels: list[str] = []
    above = ""
    for number in (5, 4, 3, 2):
        side = chain.append(f"side{number}", Conv(PYRAMID, (1, 1), bias=True), stages[number - 2])
        if above:
            larger = chain.append(f"up{number}", Upsample(), above)
            side = chain.append(f"sum{number}", Add(), side, larger)
        above = side
        levels.insert(0, chain.append(f"p{number}", Conv(PYRAMID, bias=True), side))
    return [*levels, chain.append("p6", MaxPool((1, 1), (2, 2)), levels[-1])]


def faster_rcnn_head(regions: int) -> Architecture:
    """Class and box of each of `regions` regions of 7 x 7 x 256 (Lin et al. 2017, section 4.2)."""
    chain = Chain()
    chain.append("input", InputArray((regions, BINS * BINS * PYRAMID)))
    for name in ("fc1", "fc2"):
        chain.append(name, Dense(HIDDEN))
        chain.append(f"{name}_relu", ReLU())
    hidden = chain.last
    boxes = chain.append("box", Dense(4 * CLASSES), hidden)
    chain.append("class", Dense(CLASSES + 1), hidden)
    chain.append("class_softmax", Softmax())
    return chain.finished((boxes,))
