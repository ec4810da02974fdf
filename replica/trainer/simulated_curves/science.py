"""The learning curve of a simulated training of a scientific workload."""

import random
from dataclasses import dataclass

from aiperf.facts import EpochFacts
from aiperf.network.architecture import Architecture
from aiperf.wire.messages import WorkloadRequest
from replica.trainer.simulated_curves.contract import accuracy_after
from workloads.data import find_set
from workloads.data.sets import ScienceSet
from workloads.science import SCIENCE
from workloads.science.contract import WorkloadSize, planned

LEAST_SHARE, MOST_SHARE = 0.9, 1.2
"""Range of the share of the target that a curve approaches: most trainings reach theirs, after
different numbers of epochs."""


@dataclass(frozen=True, slots=True)
class ScienceCourse:
    """The curve of one training, whose seed decides its final quality."""

    request: WorkloadRequest
    size: WorkloadSize
    dataset: ScienceSet
    architecture: str
    share: float
    """The share of the target that its learning curve approaches."""

    @property
    def networks(self) -> tuple[Architecture, ...]:
        """All networks of the workload."""
        return tuple(build() for build in self.size.networks.values())

    @property
    def train_images(self) -> int:
        """The training images of the data set."""
        return self.dataset.train_images

    def facts(self, epoch: int) -> EpochFacts:
        """The facts of an epoch: all measures of the target at one share of it.

        At the end they have the measures of training images, too, and of a test split.
        """
        trained, validated = self.dataset.train_images, self.dataset.validation_images
        tested = self.dataset.test_images
        share = min(1.0, accuracy_after(epoch, self.request.max_epochs, self.share))
        target = self.size.target.items()
        measures = {name: wanted * share if self.size.higher else wanted / share for name, wanted in target}
        sampled = min(trained, validated)
        ends = epoch == self.request.epochs or (self.request.stops_at_target and self.size.reached(measures))
        return EpochFacts(
            epoch=epoch,
            images_trained=trained,
            images_evaluated=validated + (sampled if ends else 0),
            loss=1 - share,
            validation_loss=1 - share,
            learning_rate=self.request.learning_rate,
            measured_quality=self.size.quality(measures),
            measures=measures,
            training_measures=measures if ends else None,
            sampled_images=sampled if ends else None,
            test_images=tested if ends and tested else None,
            test_measures=measures if ends and tested else None,
        )

    def reached(self, facts: EpochFacts) -> bool:
        """True if the run stops at targets and this epoch is at its own."""
        return self.request.stops_at_target and facts.measures is not None and self.size.reached(facts.measures)


def open_science(request: WorkloadRequest) -> ScienceCourse:
    """Make the curve of the workload that a request names."""
    return course_on(request, data_of(request))


def data_of(request: WorkloadRequest) -> ScienceSet:
    """The data of a request; without a directory, of the size that the workload needs.

    Raises DatasetError.
    """
    needs = size_of(request).data
    return planned(needs) if request.data_dir is None else find_set(needs.source, request.data_dir)


def size_of(request: WorkloadRequest) -> WorkloadSize:
    """The size of the workload that a request names."""
    return SCIENCE.load(request.workload).size(request.size)


def course_on(request: WorkloadRequest, dataset: ScienceSet) -> ScienceCourse:
    """Make the curve of a training on these data."""
    size = size_of(request)
    share = random.Random(request.seed).uniform(LEAST_SHARE, MOST_SHARE)
    return ScienceCourse(request, size, dataset, next(iter(size.networks.values()))().hash, share)
