"""Extreme weather: four kinds of events as boxes in global maps of 16 quantities.

Data: 25 years of the Extreme Weather data set (extremeweatherdataset.github.io), of which 22 train
and 2 validate, as the reference splits them (eracah/hur-detect). Target and epochs: HPC AI500 v2.
"""

from functools import partial

from aiperf.network.operations import LayerFacts
from aiperf.network.science import SCIENCE_1
from workloads.networks import climate_semi, faster_rcnn_body, faster_rcnn_head
from workloads.science.contract import DataNeeds, NetworkPasses, Schedule, ScienceWorkload, WorkloadSize
from workloads.settings import semi_supervised
from workloads.settings.detection import OFFICIAL, REHEARSAL, DetectionSettings
from workloads.settings.semi_supervised import SemiSupervisedSettings

YEAR = 1460
"""Number of images of a year: four a day."""

TRAINED, VALIDATED = 22 * YEAR, 2 * YEAR
REHEARSED, REHEARSED_VALIDATION = 480, 64
"""Numbers of training and validation examples that all rehearsals share."""

WARM_UP_STEPS, REHEARSAL_WARM_UP_STEPS = 500, 60


def roi_align_operations(regions: int, settings: DetectionSettings) -> int:
    """The operations to cut an image's regions out of the pyramid, by rule set `science-1`."""
    output = (regions, settings.bins, settings.bins, settings.pyramid)
    facts = LayerFacts(inputs=(), output=output, window=(settings.samples, settings.samples))
    return SCIENCE_1.count("roialign", facts).forward


def _data(settings: DetectionSettings, train: int, validation: int) -> DataNeeds:
    return DataNeeds(
        source="ewa",
        folder=f"ewa-{settings.image[0]}",
        input_shape=(*settings.image, settings.channels),
        target_shape=settings.target_shape,
        blank_target=-1.0,
        train_examples=train,
        validation_examples=validation,
    )


def _size(
    settings: DetectionSettings, data: DataNeeds, schedule: Schedule, target: float, **numbers: int
) -> WorkloadSize:
    trained, found = f"head-{settings.regions.total}", f"head-{settings.proposals}"
    return WorkloadSize(
        networks={
            "body": partial(faster_rcnn_body, settings),
            trained: partial(faster_rcnn_head, settings.regions.total, settings),
            found: partial(faster_rcnn_head, settings.proposals, settings),
        },
        training=(NetworkPasses(network="body"), NetworkPasses(network=trained)),
        evaluation=(NetworkPasses(network="body", backward=0), NetworkPasses(network=found, backward=0)),
        further_training=roi_align_operations(settings.regions.total, settings),
        further_evaluation=roi_align_operations(settings.proposals, settings),
        task="detection",
        settings=settings,
        data=data,
        schedule=schedule,
        target={"map@0.5": target},
        higher=True,
        **numbers,
    )


FRCNN_EWA = ScienceWorkload(
    name="frcnn-ewa",
    title="Faster R-CNN on extreme weather",
    official=_size(
        OFFICIAL,
        _data(OFFICIAL, TRAINED, VALIDATED),
        Schedule(
            optimiser="sgd",
            learning_rate=0.0025,
            warm_up=WARM_UP_STEPS / (50 * TRAINED),
            decay="steps",
            steps=((33 / 50, 0.1), (44 / 50, 0.01)),
            weight_decay=1e-4,
        ),
        target=0.35,
        batch_size=1,
        epochs=50,
    ),
    rehearsal=_size(
        REHEARSAL,
        _data(REHEARSAL, REHEARSED, REHEARSED_VALIDATION),
        Schedule(
            optimiser="sgd", learning_rate=0.02, warm_up=REHEARSAL_WARM_UP_STEPS / (8 * 120), decay="cosine", clip=5.0
        ),
        target=0.80,
        batch_size=4,
        epochs=8,
    ),
)


def _half_labelled(
    settings: SemiSupervisedSettings, schedule: Schedule, target: float, examples: tuple[int, int], epochs: int
) -> WorkloadSize:
    """Make one size of the climate network, whose images have labels or not.

    Both cost the same: every image goes through the whole network.
    """
    data = DataNeeds(
        source="ewa-semi",
        folder=f"ewa-{settings.image[0]}",
        input_shape=(*settings.image, settings.channels),
        target_shape=settings.target_shape,
        blank_target=-1.0,
        train_examples=examples[0],
        validation_examples=examples[1],
    )
    return WorkloadSize(
        networks={"network": partial(climate_semi, settings)},
        training=(NetworkPasses(network="network"),),
        evaluation=(NetworkPasses(network="network", backward=0),),
        task="semi_supervised",
        settings=settings,
        data=data,
        schedule=schedule,
        target={"map@0.1": target},
        higher=True,
        batch_size=8,
        epochs=epochs,
    )


CLIMATE_SEMI = ScienceWorkload(
    name="climate-semi",
    title="Climate network of Deep Learning at 15PF",
    # Optimiser: NERSC/climate-caffe. Batch and epochs are chosen; the target is provisional.
    official=_half_labelled(
        semi_supervised.OFFICIAL,
        Schedule(optimiser="sgd", learning_rate=1e-5, weight_decay=5e-5, clip=1e4),
        target=0.45,
        examples=(TRAINED, VALIDATED),
        epochs=50,
    ),
    rehearsal=_half_labelled(
        semi_supervised.REHEARSAL,
        Schedule(optimiser="adam", learning_rate=0.001, decay="cosine"),
        target=0.75,
        examples=(REHEARSED, REHEARSED_VALIDATION),
        epochs=12,
    ),
)
