"""How often an image runs through the networks of a workload, by rule set `science-1`."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from aiperf.network.operations import LayerCount, LayerFacts, NetworkCount, count
from aiperf.network.science import SCIENCE_1, Passes, training_operations
from workloads.networks.climate import faster_rcnn_body, faster_rcnn_head
from workloads.networks.generative import discriminator, generator
from workloads.settings.detection import DetectionSettings
from workloads.settings.generation import GenerationSettings


@dataclass(frozen=True, slots=True)
class ImagePasses:
    """Passes of an image through all networks of a workload."""

    training: tuple[Passes, ...]
    evaluation: tuple[Passes, ...]

    @property
    def training_operations(self) -> int:
        """Operations to train one image."""
        return training_operations(self.training)

    @property
    def evaluation_operations(self) -> int:
        """Operations to evaluate one image."""
        return training_operations(self.evaluation)


def detection(settings: DetectionSettings) -> ImagePasses:
    """Body, RoI-align and head, which sees sampled regions in training, else all proposals."""
    network = faster_rcnn_body(settings)
    levels = sum(prod(network.shapes[name]) for name in network.heads[: settings.region_levels])
    body = count(network, SCIENCE_1)

    def parts(regions: int) -> tuple[NetworkCount, ...]:
        cut = NetworkCount((_cut(regions, levels, settings),))
        return body, cut, count(faster_rcnn_head(regions, settings), SCIENCE_1)

    return ImagePasses(
        tuple(Passes(part) for part in parts(settings.regions.total)),
        tuple(Passes(part, backward=0) for part in parts(settings.proposals)),
    )


def _cut(regions: int, levels: int, settings: DetectionSettings) -> LayerCount:
    """RoI-align of this many regions, once each, from levels with this many elements together."""
    output = (regions, settings.bins, settings.bins, settings.pyramid)
    facts = LayerFacts(inputs=(), output=output, window=(settings.samples, settings.samples))
    return LayerCount("align", "roialign", SCIENCE_1.count("roialign", facts), 0, levels + 4 * regions + prod(output))


def generation(settings: GenerationSettings) -> ImagePasses:
    """A real image costs a generated one, both judged, and the way back to the generator."""
    made, judged = (count(network(settings), SCIENCE_1) for network in (generator, discriminator))
    return ImagePasses((Passes(made), Passes(judged, 2, 2, 1)), (Passes(made, backward=0),))
