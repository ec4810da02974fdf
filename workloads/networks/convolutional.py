"""Plain convolutional networks: CosmoFlow and the HEP network of "Deep Learning at 15PF"."""

from __future__ import annotations

from aiperf.network.architecture import Architecture
from aiperf.network.layers import (
    AveragePool,
    Conv,
    Dense,
    Dropout,
    Flatten,
    GlobalAveragePool,
    Input,
    InputArray,
    Layer,
    LeakyReLU,
    MaxPool,
    ReLU,
    Scale,
    Softmax,
    Tanh,
)
from workloads.networks.chain import Chain, cube
from workloads.networks.resnet import PARAMETER_RANGE


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
