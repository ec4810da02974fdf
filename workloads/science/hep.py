"""High-energy physics: jet images, a supersymmetric signal against the most prevalent background.

Data: HPC AI500, section 3.2 (Jiang et al. 2019); 412,416 training and 137,471 validation images of
64 x 64 (eracah/atlas_dl).
"""

from functools import partial

from workloads.networks import hepcnn, hepcnn_rehearsal, resnet_hep, resnet_hep_rehearsal
from workloads.science.contract import (
    DataNeeds,
    Schedule,
    ScienceWorkload,
    WorkloadSize,
    one_network,
)

TARGETS = 3
"""Numbers of a target: one-hot background and signal, and 1 if the physicists' selection keeps the
event (`passSR`)."""

_HEP_64 = DataNeeds(
    source="hep",
    folder="hep-64",
    input_shape=(64, 64, 3),
    target_shape=(TARGETS,),
    train_examples=412_416,
    validation_examples=137_471,
)

_HEP_224 = DataNeeds(
    source="hep",
    folder="hep-224",
    input_shape=(224, 224, 3),
    target_shape=(TARGETS,),
    train_examples=412_416,
    validation_examples=137_471,
)

_HEP_32 = DataNeeds(
    source="hep",
    folder="hep-32",
    input_shape=(32, 32, 3),
    target_shape=(TARGETS,),
    train_examples=8_000,
    validation_examples=3_000,
    test_examples=1_000,
)

RESNET_HEP = ScienceWorkload(
    name="resnet-hep",
    title="ResNet-50 on jet images",
    # Target: a small network reaches 0.9834 on the test set (cori-intml-examples); provisional.
    official=WorkloadSize(
        **one_network(resnet_hep),
        task="classification",
        data=_HEP_64,
        batch_size=256,
        epochs=30,
        schedule=Schedule(optimiser="sgd", learning_rate=0.1, decay="linear"),
        target={"accuracy": 0.980},
        higher=True,
    ),
    rehearsal=WorkloadSize(
        **one_network(resnet_hep_rehearsal),
        task="classification",
        data=_HEP_32,
        batch_size=64,
        epochs=4,
        schedule=Schedule(optimiser="sgd", learning_rate=0.1, decay="linear"),
        target={"accuracy": 0.85},
        higher=True,
    ),
)

HEPCNN = ScienceWorkload(
    name="hepcnn",
    title="HEP network of Deep Learning at 15PF",
    # Optimiser and batch: NERSC/hep_cnn_benchmark, cori_knl_224_adam.json. The target is that of
    # the abstract, "exceeding selections on high-level features"; its number is provisional.
    official=WorkloadSize(
        **one_network(partial(hepcnn, 224)),
        task="classification",
        data=_HEP_224,
        batch_size=128,
        epochs=30,
        schedule=Schedule(optimiser="adam", learning_rate=0.001),
        target={"signal_over_selection": 1.2},
        higher=True,
    ),
    rehearsal=WorkloadSize(
        **one_network(hepcnn_rehearsal),
        task="classification",
        data=_HEP_32,
        batch_size=64,
        epochs=8,
        schedule=Schedule(optimiser="adam", learning_rate=0.001),
        target={"accuracy": 0.88},
        higher=True,
    ),
)
