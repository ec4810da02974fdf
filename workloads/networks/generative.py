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

LATENT = 64
"""Numbers that a generator starts from."""

LAYERS = 4
WIDEST = 512
"""Channels of the smallest image or volume; they halve as its sides double."""


def generator(size: int, axes: int) -> Architecture:
    """From 64 numbers to one channel of `size` along each axis."""
    chain = Chain()
    start = (*cube(size // 2**LAYERS, axes), WIDEST)
    chain.append("input", InputArray((LATENT,)))
    chain.append("fc", Dense(prod(start)))
    chain.append("reshape", Reshape(start))
    chain.append("bn0", BatchNorm())
    chain.append("relu0", ReLU())
    for layer in range(1, LAYERS):
        filters = WIDEST // 2**layer
        chain.append(f"up{layer}", ConvTranspose(filters, cube(5, axes), cube(2, axes), bias=True))
        chain.append(f"bn{layer}", BatchNorm())
        chain.append(f"relu{layer}", ReLU())
    chain.append(f"up{LAYERS}", ConvTranspose(1, cube(5, axes), cube(2, axes), bias=True))
    chain.append("tanh", Tanh())
    return chain.finished()


def discriminator(size: int, axes: int) -> Architecture:
    """From one channel of `size` along each axis to the probability that it is real."""
    chain = Chain()
    chain.append("input", InputArray((*cube(size, axes), 1)))
    for layer in range(1, LAYERS + 1):
        filters = WIDEST // 2 ** (LAYERS - layer)
        chain.append(f"conv{layer}", Conv(filters, cube(5, axes), cube(2, axes), dilation=cube(1, axes), bias=True))
        if layer > 1:
            chain.append(f"bn{layer}", BatchNorm())
        chain.append(f"lrelu{layer}", LeakyReLU(0.2))
    chain.append("flatten", Flatten())
    chain.append("fc", Dense(1))
    chain.append("fc_sigmoid", Sigmoid())
    return chain.finished()
