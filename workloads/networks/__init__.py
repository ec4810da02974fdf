"""The networks of the scientific workloads at their official sizes, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from aiperf.network.architecture import Architecture
from workloads.networks.climate import climate_semi, faster_rcnn_body, faster_rcnn_head
from workloads.networks.convolutional import cosmoflow, hepcnn
from workloads.networks.generative import discriminator, generator
from workloads.networks.resnet import resnet_cos, resnet_hep

NETWORKS: Mapping[str, Callable[[], Architecture]] = {
    "resnet-hep": resnet_hep,
    "resnet-cos": resnet_cos,
    "cosmoflow": cosmoflow,
    "frcnn-ewa/body": faster_rcnn_body,
    "frcnn-ewa/head-512": partial(faster_rcnn_head, 512),
    "frcnn-ewa/head-1000": partial(faster_rcnn_head, 1000),
    "dcgan-cos/generator": partial(generator, 64, 3),
    "dcgan-cos/discriminator": partial(discriminator, 64, 3),
    "cosmogan/generator": partial(generator, 256, 2),
    "cosmogan/discriminator": partial(discriminator, 256, 2),
    "hepcnn": partial(hepcnn, 224),
    "hepcnn-64": partial(hepcnn, 64),
    "climate-semi": climate_semi,
}
"""All are counted by rule set `science-1`."""

__all__ = ["NETWORKS"]
