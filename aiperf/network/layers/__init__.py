"""Layer types of architectures: validated values that know their output and weight shapes."""

from aiperf.network.layers.contract import Extent, Layer, Padding, Pair, Shape, ShapeError, window_output
from aiperf.network.layers.unweighted import (
    Add,
    AveragePool,
    Concat,
    Dropout,
    Flatten,
    GlobalAveragePool,
    Input,
    InputArray,
    LeakyReLU,
    MaxPool,
    ReLU,
    Reshape,
    RoiAlign,
    Scale,
    Sigmoid,
    Softmax,
    Tanh,
    Upsample,
    ZeroPad,
)
from aiperf.network.layers.weighted import BATCHNORM_EPSILON, BATCHNORM_MOMENTUM, BatchNorm, Conv, ConvTranspose, Dense

LAYER_TYPES: dict[str, type[Layer]] = {
    layer.kind: layer
    for layer in (
        Input, Conv, Dense, BatchNorm, ReLU, Softmax, Dropout, Add, Concat,
        MaxPool, GlobalAveragePool, Flatten, ZeroPad,
        InputArray, ConvTranspose, LeakyReLU, Sigmoid, Tanh, Scale, AveragePool, Reshape, Upsample, RoiAlign,
    )
}  # fmt: skip
"""Every layer type by its `kind`; the reader of architecture files knows exactly these."""

__all__ = [
    "BATCHNORM_EPSILON",
    "BATCHNORM_MOMENTUM",
    "LAYER_TYPES",
    "Add",
    "AveragePool",
    "BatchNorm",
    "Concat",
    "Conv",
    "ConvTranspose",
    "Dense",
    "Dropout",
    "Extent",
    "Flatten",
    "GlobalAveragePool",
    "Input",
    "InputArray",
    "Layer",
    "LeakyReLU",
    "MaxPool",
    "Padding",
    "Pair",
    "ReLU",
    "Reshape",
    "RoiAlign",
    "Scale",
    "Shape",
    "ShapeError",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "Upsample",
    "ZeroPad",
    "window_output",
]
