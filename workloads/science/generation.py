"""Cosmology: new matter distributions from a pair of networks (HPC AI500, Table 4: DCGAN).

Constants of the training: MustafaMustafa/cosmoGAN. The targets are provisional.
"""

from functools import partial

from workloads.networks import discriminator, generator
from workloads.science.contract import DataNeeds, NetworkPasses, Schedule, ScienceWorkload, WorkloadSize
from workloads.settings.generation import OFFICIAL, REHEARSAL, GenerationSettings

_ADAM = Schedule(optimiser="adam", learning_rate=2e-4, momentum=0.5)


def _data(settings: GenerationSettings, folder: str, train: int, validation: int) -> DataNeeds:
    return DataNeeds(
        source="cos-fields",
        folder=folder,
        input_shape=(*[settings.size] * settings.axes, 1),
        target_shape=settings.target_shape,
        train_examples=train,
        validation_examples=validation,
    )


def _size(settings: GenerationSettings, data: DataNeeds, target: dict[str, float], **numbers: int) -> WorkloadSize:
    # A step runs the generator once, and the discriminator on real and on generated fields. The
    # generator's gradient needs that of the discriminator's input, not of its weights.
    return WorkloadSize(
        networks={"generator": partial(generator, settings), "discriminator": partial(discriminator, settings)},
        training=(
            NetworkPasses(network="generator"),
            NetworkPasses(network="discriminator", forward=2, backward=2, input_gradient=1),
        ),
        evaluation=(NetworkPasses(network="generator", backward=0),),
        task="generation",
        settings=settings,
        data=data,
        schedule=_ADAM,
        target=target,
        higher=False,
        **numbers,
    )


DCGAN_COS = ScienceWorkload(
    name="dcgan-cos",
    title="DCGAN on matter distributions",
    official=_size(
        OFFICIAL,
        _data(OFFICIAL, "cos-128", 8 * 524_288, 8 * 65_536),
        {"spectrum": 0.05, "ks": 0.05},
        batch_size=64,
        epochs=50,
    ),
    rehearsal=_size(
        REHEARSAL,
        _data(REHEARSAL, "cos-fields-32", 1_920, 480),
        {"spectrum": 0.25, "ks": 0.15},
        batch_size=32,
        epochs=20,
    ),
)
