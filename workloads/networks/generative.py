"""Generators and discriminators after DCGAN (Radford et al. 2015), with the layers of cosmoGAN.

Sizes from MustafaMustafa/cosmoGAN (256 x 256) and, with one more axis, vmos1/cosmogan_pytorch (64
x 64 x 64).
"""

from __future__ import annotations

from math import prod

from aiperf.network.architecture import Architecture
from aiperf.network.layers import (
    BatchNorm,
    Conv,
    ConvTranspose,
    Dense,
    Flatten,
    InputArray,
    LeakyReLU,
    ReLU,
    Reshape,
    Sigmoid,
    Tanh,
)
from workloads.networks.chain import Chain, cube
from workloads.settings.generation import GenerationSettings


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
