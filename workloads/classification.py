"""Image classification: one-hot labels, categorical cross-entropy, top-1 accuracy."""

from pathlib import Path

import numpy as np

from aiperf.config.datasets import Dataset, find_dataset
from aiperf.errors import TrialFailedError
from aiperf.facts import EpochFacts
from aiperf.network.architecture import Architecture
from aiperf.network.json_files import read_requested
from aiperf.wire.messages import ArchitectureRequest
from workloads.contract import Batch, PerExample, Sums

TOP_1 = PerExample("categorical_accuracy")
"""Metric that is 1 if the class with the highest output is the labelled one, else 0."""


class Classification:
    """Classification of images (S, S, 3) by probabilities (paper, section 4.3 and Table 4)."""

    metrics = (TOP_1,)

    def training_loss(self, request: ArchitectureRequest) -> PerExample:
        """The cross-entropy with smoothed labels (Szegedy et al. 2016, section 7)."""
        return PerExample("categorical_crossentropy", {"label_smoothing": request.label_smoothing})

    def validation_loss(self, request: ArchitectureRequest) -> PerExample:
        """The cross-entropy with the labels as they are."""
        return PerExample("categorical_crossentropy")

    def dataset(self, request: ArchitectureRequest) -> Dataset:
        """The images that a request names. Raises DatasetError."""
        return find_dataset(request.dataset, request.data_dir)

    def architecture(self, request: ArchitectureRequest, dataset: Dataset) -> Architecture:
        """The network that a request names.

        Raises ArchitectureError, or TrialFailedError ("build").
        """
        architecture = read_requested(Path(request.architecture_path), request.architecture_hash)
        wanted = ((dataset.image_size, dataset.image_size, 3), (dataset.classes,))
        found = (architecture.input_shape, architecture.output_shape)
        if wanted != found:
            raise TrialFailedError(
                "build",
                f"the architecture maps {found[0]} to {found[1]}; the data set needs {wanted[0]} to {wanted[1]}",
            )
        return architecture

    def blank(self, examples: int, dataset: Dataset) -> Batch:
        """Black images of the first class: (N, S, S, 3) and one-hot (N, classes)."""
        labels = np.zeros((examples, dataset.classes), np.float32)
        # A valid label, so that the loss of a warm-up is finite.
        labels[:, 0] = 1
        return np.zeros((examples, dataset.image_size, dataset.image_size, 3), np.float32), labels

    def reached(self, facts: EpochFacts) -> bool:
        """False: only patience ends a training of AutoML."""
        return False

    def facts(self, epoch: int, learning_rate: float, trained: Sums, evaluated: Sums) -> EpochFacts:
        """The facts of a completed epoch, with the number of images whose top-1 class is right."""
        return EpochFacts(
            epoch=epoch,
            images_trained=trained.examples,
            images_evaluated=evaluated.examples,
            correct=round(evaluated.metrics[0]),
            loss=trained.loss / max(1, trained.examples),
            validation_loss=evaluated.loss / evaluated.examples,
            learning_rate=learning_rate,
        )


CLASSIFICATION = Classification()
