"""Cosmology: four parameters of a universe from the distribution of its dark matter.

Data and targets: CosmoFlow in MLPerf HPC (mlcommons/hpc; rules 3.0): 524,288 training and 65,536
validation cubes of 128 x 128 x 128 x 4, mean absolute error 0.124 of parameters in [-1, 1].
"""

from collections.abc import Callable
from dataclasses import dataclass

from aiperf.network.architecture import Architecture
from workloads.networks import cosmoflow, cosmoflow_rehearsal, resnet_cos, resnet_cos_rehearsal
from workloads.science.contract import (
    DataNeeds,
    Schedule,
    ScienceWorkload,
    WorkloadSize,
    one_network,
)

Build = Callable[[], Architecture]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """The differences between the rehearsals of the two workloads."""

    epochs: int
    rate: float
    target: float


PARAMETERS = 4
"""Number of parameters: Omega_m, sigma_8, n_s and H0."""

TARGET = {"mean_absolute_error": 0.124}

_COS_128 = DataNeeds(
    source="cos",
    folder="cos-128",
    input_shape=(128, 128, 128, 4),
    target_shape=(PARAMETERS,),
    train_examples=524_288,
    validation_examples=65_536,
)

_COS_16 = DataNeeds(
    source="cos",
    folder="cos-16",
    input_shape=(16, 16, 16, 4),
    target_shape=(PARAMETERS,),
    train_examples=4_096,
    validation_examples=512,
)

EPOCHS = 128

_MLPERF = Schedule(
    optimiser="sgd",
    learning_rate=0.001 * 4 / 64,
    warm_up=4 / EPOCHS,
    decay="steps",
    steps=((32 / EPOCHS, 0.25), (64 / EPOCHS, 0.125)),
)
"""Schedule of cosmo.yaml (mlcommons/hpc): 0.001 for a global batch of 64, in proportion to it."""


def _workload(name: str, title: str, official: Build, rehearsal: Build, rehearsed: Rehearsed) -> ScienceWorkload:
    """Make a regression of the four parameters, official as in MLPerf HPC."""
    return ScienceWorkload(
        name=name,
        title=title,
        official=WorkloadSize(
            **one_network(official),
            task="regression",
            data=_COS_128,
            batch_size=4,
            epochs=EPOCHS,
            schedule=_MLPERF,
            target=TARGET,
            higher=False,
        ),
        rehearsal=WorkloadSize(
            **one_network(rehearsal),
            task="regression",
            data=_COS_16,
            batch_size=16,
            epochs=rehearsed.epochs,
            schedule=Schedule(optimiser="adam", learning_rate=rehearsed.rate, warm_up=0.1, decay="cosine", last=0.1),
            target={"mean_absolute_error": rehearsed.target},
            higher=False,
        ),
    )


RESNET_COS = _workload(
    "resnet-cos",
    "ResNet-50 in three dimensions on matter distributions",
    resnet_cos,
    resnet_cos_rehearsal,
    Rehearsed(epochs=8, rate=0.003, target=0.43),
)

COSMOFLOW = _workload(
    "cosmoflow",
    "CosmoFlow on matter distributions",
    cosmoflow,
    cosmoflow_rehearsal,
    Rehearsed(epochs=20, rate=0.002, target=0.33),
)
