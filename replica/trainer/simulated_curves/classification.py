"""The learning curve of a simulated training of AutoML."""

import random
from dataclasses import dataclass
from pathlib import Path

from aiperf.config.datasets import Dataset, find_dataset
from aiperf.facts import EpochFacts
from aiperf.network.architecture import Architecture
from aiperf.network.json_files import read_requested
from aiperf.rules.rounds import learning_rate
from aiperf.wire.messages import ArchitectureRequest
from replica.trainer.simulated_curves.contract import accuracy_after


@dataclass(frozen=True, slots=True)
class ClassificationCourse:
    """The curve of one architecture, whose hash decides its final accuracy."""

    request: ArchitectureRequest
    dataset: Dataset
    network: Architecture
    quality: float
    """The accuracy that its learning curve approaches."""

    @property
    def architecture(self) -> str:
        """The hash of the network."""
        return self.network.hash

    @property
    def networks(self) -> tuple[Architecture, ...]:
        """The network."""
        return (self.network,)

    @property
    def train_images(self) -> int:
        """The training images of the data set."""
        return self.dataset.train_images

    def facts(self, epoch: int) -> EpochFacts:
        """The facts of an epoch, with the accuracy along the curve."""
        request, images = self.request, self.dataset.validation_images
        accuracy = accuracy_after(epoch, request.max_epochs, self.quality)
        return EpochFacts(
            epoch=epoch,
            images_trained=self.dataset.train_images,
            images_evaluated=images,
            correct=round(accuracy * images),
            loss=1 - accuracy,
            validation_loss=1 - accuracy,
            learning_rate=learning_rate(request.learning_rate, epoch - 1, request.max_epochs),
        )

    def reached(self, facts: EpochFacts) -> bool:
        """False: only patience ends a training of AutoML."""
        return False


def open_classification(request: ArchitectureRequest) -> ClassificationCourse:
    """Make the curve of the architecture that a request names."""
    dataset = find_dataset(request.dataset, request.data_dir)
    found = read_requested(Path(request.architecture_path), request.architecture_hash)
    # Seeded by the hash: the same architecture has the same accuracy on every replica, as a search
    # needs it.
    return ClassificationCourse(request, dataset, found, random.Random(found.hash).uniform(0.75, 0.99))
