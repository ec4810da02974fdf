"""What is known of each data set without reading it: sizes, classes and sensible training defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dataset:
    """A labelled image data set with a fixed split."""

    name: str
    train_images: int
    validation_images: int
    image_size: int
    """Side of the square RGB training images, in pixels."""
    classes: int
    batch_size: int
    """Default images per accelerator and step."""
    max_epochs: int
    """Default maximum of epochs of a trial."""
    available: bool
    """Whether this version has an input pipeline for it."""


IMAGENET = Dataset("imagenet", 1_281_167, 50_000, 224, 1000, batch_size=448, max_epochs=60, available=False)
"""ILSVRC2012 (Russakovsky et al. 2015); batch size and epochs from the AIPerf paper, Table 4."""

DIGITS = Dataset("digits", 1_437, 360, 32, 10, batch_size=64, max_epochs=8, available=True)
"""scikit-learn's 1,797 handwritten digits (UCI, Alpaydin and Kaynak 1998), 8 x 8 scaled up; 20 % validate."""

DATASETS = {dataset.name: dataset for dataset in (IMAGENET, DIGITS)}
