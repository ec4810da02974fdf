"""Small directories of real JPEG images, requests to train from them, and their sources."""

from pathlib import Path
from typing import Any

import numpy as np

from aiperf.config.dataset_manifest import DatasetManifest
from aiperf.config.datasets import find_dataset
from replica.trainer.data import open_source
from replica.trainer.data.contract import DataSource
from tests.support.trainings.requests import request_for
from workloads.datasets.encoding import encode_jpeg
from workloads.datasets.synthesize import Recipe, draw, synthesize

TRAIN, VALIDATION, CLASSES, SIDE = 46, 13, 3, 32
"""Numbers that nothing divides evenly."""

RECIPE = Recipe(
    {"train": TRAIN, "validation": VALIDATION}, {"train": 4, "validation": 2}, CLASSES, 40, 56, SIDE, seed=1
)


def silent(done: int, total: int) -> None:
    """Ignore the progress."""


def make_shards(folder: Path) -> DatasetManifest:
    return synthesize(RECIPE, folder, silent, workers=1)


def make_folders(folder: Path, train: int = TRAIN, validation: int = VALIDATION) -> None:
    """The same kind of images as one file each."""
    for split, count in (("train", train), ("validation", validation)):
        for index in range(count):
            label = index % CLASSES + 1
            pixels = draw(RECIPE, label, np.random.default_rng((1, 0 if split == "train" else 1, index)))
            path = folder / split / f"class{label}" / f"{index:04d}.JPEG"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode_jpeg(pixels, 90))


def source_for(dataset: str, data_dir: Path | None = None, pipeline: str = "tensorflow", **changes: Any) -> DataSource:
    request = request_for(dataset, data_dir, **changes)
    return open_source(request, find_dataset(request.dataset, request.data_dir), pipeline)
