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
    chain = Chain()
    chain.append("input", InputArray((128, 128, 128, 4)))
    for block in range(1, 6):
        filters = 32 * 2 ** (block - 1)
        chain.append(f"conv{block}", Conv(filters, cube(3, 3), cube(1, 3), dilation=cube(1, 3), bias=True))
        chain.append(f"conv{block}_lrelu", LeakyReLU(0.3))
        chain.append(f"pool{block}", MaxPool(cube(2, 3), cube(2, 3)))
    chain.append("flatten", Flatten())
    return _parameters(chain, dropout=0.5)


def cosmoflow_rehearsal() -> Architecture:
    """CosmoFlow on 16 x 16 x 16 x 4: three blocks of a quarter of the width, average pooling."""
    chain = Chain()
    chain.append("input", InputArray((16, 16, 16, 4)))
    for block in range(1, 4):
        filters = 8 * 2 ** (block - 1)
        chain.append(f"conv{block}", Conv(filters, cube(3, 3), cube(1, 3), dilation=cube(1, 3), bias=True))
        chain.append(f"conv{block}_lrelu", LeakyReLU(0.3))
        chain.append(f"pool{block}", AveragePool(cube(2, 3), cube(2, 3)))
    chain.append("flatten", Flatten())
    return _parameters(chain, dropout=0.0)


def _parameters(chain: Chain, dropout: float) -> Architecture:
    """The dense layers of CosmoFlow, which end in four parameters."""
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
    """Jet images of `size` x `size` x 3 (Kurth et al. 2017; NERSC/hep_cnn_benchmark)."""
    chain = Chain()
    chain.append("input", Input(size, size, 3))
    for block in range(1, 5):
        chain.append(f"conv{block}", Conv(128, bias=True))
        chain.append(f"conv{block}_relu", ReLU())
        chain.append(f"pool{block}", MaxPool())
        chain.append(f"drop{block}", Dropout(0.5))
    return _jets(chain, 5, 128)


def hepcnn_rehearsal() -> Architecture:
    """The same on 32 x 32 x 3: one block less, a quarter of the width, no dropout."""
    chain = Chain()
    chain.append("input", Input(32, 32, 3))
    for block in range(1, 4):
        chain.append(f"conv{block}", Conv(32, bias=True))
        chain.append(f"conv{block}_relu", ReLU())
        chain.append(f"pool{block}", MaxPool())
    return _jets(chain, 4, 32)


def _jets(chain: Chain, block: int, filters: int) -> Architecture:
    """The last convolution, and signal or background."""
    chain.append(f"conv{block}", Conv(filters, bias=True))
    chain.append(f"conv{block}_relu", ReLU())
    chain.append("gap", GlobalAveragePool())
    chain.append("fc", Dense(2))
    chain.append("fc_softmax", Softmax())
    return chain.finished()
