"""Extreme weather: four kinds of events as boxes in global maps of 16 quantities.

Data: 25 years of the Extreme Weather data set (extremeweatherdataset.github.io), of which 22 train
and 2 validate, as the reference splits them (eracah/hur-detect). Target and epochs: HPC AI500 v2.
"""

from __future__ import annotations

from functools import partial

from aiperf.network.operations import LayerFacts
from aiperf.network.science import SCIENCE_1
from workloads.networks.climate import faster_rcnn_body, faster_rcnn_head
from workloads.science.contract import DataNeeds, NetworkPasses, Schedule, ScienceWorkload, WorkloadSize
from workloads.settings.detection import OFFICIAL, REHEARSAL, DetectionSettings

YEAR = 1460
"""Images of a year: four a day."""

WARM_UP_STEPS, REHEARSAL_WARM_UP_STEPS = 500, 60


def roi_align_operations(regions: int, settings: DetectionSettings) -> int:
    """Operations to cut the regions of one image out of the pyramid, by rule set `science-1`."""
    output = (regions, settings.bins, settings.bins, settings.pyramid)
    facts = LayerFacts(inputs=(), output=output, window=(settings.samples, settings.samples))
    return SCIENCE_1.count("roialign", facts).forward


def _data(settings: DetectionSettings, train: int, validation: int) -> DataNeeds:
    return DataNeeds(
        source="ewa", folder=f"ewa-{settings.image[0]}", input_shape=(*settings.image, settings.channels),
        target_shape=settings.target_shape, blank_target=-1.0, train_examples=train, validation_examples=validation,
    )  # fmt: skip


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
        task="detection", settings=settings, data=data, schedule=schedule, target={"map@0.5": target}, higher=True,
        **numbers,
    )  # fmt: skip


FRCNN_EWA = ScienceWorkload(
    name="frcnn-ewa",
    title="Faster R-CNN on extreme weather",
    official=_size(
        OFFICIAL, _data(OFFICIAL, 22 * YEAR, 2 * YEAR),
        Schedule(optimiser="sgd", learning_rate=0.0025, warm_up=WARM_UP_STEPS / (50 * 22 * YEAR), decay="steps",
                 steps=((33 / 50, 0.1), (44 / 50, 0.01)), weight_decay=1e-4),
        target=0.35, batch_size=1, epochs=50,
    ),
    rehearsal=_size(
        REHEARSAL, _data(REHEARSAL, 480, 64),
        Schedule(optimiser="sgd", learning_rate=0.02, warm_up=REHEARSAL_WARM_UP_STEPS / (8 * 120), decay="cosine",
                 clip=5.0),
        target=0.80, batch_size=4, epochs=8,
    ),
)  # fmt: skip
