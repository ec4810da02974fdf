"""The networks of the scientific workloads by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from aiperf.network.architecture import Architecture
from workloads.networks.climate import climate_semi, faster_rcnn_body, faster_rcnn_head
from workloads.networks.convolutional import cosmoflow, hepcnn
from workloads.networks.generative import discriminator, generator
from workloads.networks.resnet import resnet_cos, resnet_hep
from workloads.settings import detection, generation, semi_supervised

NETWORKS: Mapping[str, Callable[[], Architecture]] = {
    "resnet-hep": resnet_hep,
    "resnet-cos": resnet_cos,
    "cosmoflow": cosmoflow,
    "frcnn-ewa/body": faster_rcnn_body,
    "frcnn-ewa/head-512": partial(faster_rcnn_head, 512),
    "frcnn-ewa/head-1000": partial(faster_rcnn_head, 1000),
    "dcgan-cos/generator": partial(generator, generation.OFFICIAL),
    "dcgan-cos/discriminator": partial(discriminator, generation.OFFICIAL),
    "cosmogan/generator": partial(generator, generation.FLAT),
    "cosmogan/discriminator": partial(discriminator, generation.FLAT),
    "hepcnn": partial(hepcnn, 224),
    "hepcnn-64": partial(hepcnn, 64),
    "climate-semi": climate_semi,
}
"""Networks at their official sizes, by name. All are counted by rule set `science-1`."""

REHEARSAL: Mapping[str, Callable[[], Architecture]] = {
    "frcnn-ewa/body": partial(faster_rcnn_body, detection.REHEARSAL),
    "frcnn-ewa/head": partial(faster_rcnn_head, detection.REHEARSAL.regions.total, detection.REHEARSAL),
    "dcgan-cos/generator": partial(generator, generation.REHEARSAL),
    "dcgan-cos/discriminator": partial(discriminator, generation.REHEARSAL),
    "climate-semi": partial(climate_semi, semi_supervised.REHEARSAL),
}
"""Networks at sizes that train in a minute on two cores, by name."""

__all__ = ["NETWORKS", "REHEARSAL"]
