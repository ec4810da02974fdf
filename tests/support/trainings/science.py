"""Small files and directories of scientific data."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.config.dataset_manifest import Split
from replica.trainer.data import open_source
from replica.trainer.data.contract import DataSource, RankShare
from tests.support.trainings.requests import request_for
from workloads.data import find_set
from workloads.data.arrays import Rows
from workloads.data.formats import FORMATS, FileLayout
from workloads.data.generators import GENERATORS
from workloads.data.manifest import ScienceManifest, read_science_manifest
from workloads.datasets.science.synthesize import ScienceRecipe, synthesize

Both = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Inputs and targets."""

SIZES = {"hep-64": ("hep", 16), "hep-224": ("hep", 16), "ewa": ("ewa", 48), "cosmoflow": ("cos", 8)}
"""The generator of each written format, and a small size."""

GRIDS = {"hep-64": (16, 16), "hep-224": (16, 16), "ewa": (48, 72), "cosmoflow": (8, 8, 8)}

COUNTS = {"hep": (150, 37), "ewa": (35, 5), "cos": (21, 5), "cos-fields": (5, 3)}
"""Training and validation samples, which nothing divides evenly."""


@cache
def rows_of(form: str, samples: int) -> Rows:
    """Samples of a format; do not change them."""
    name, size = SIZES[form]
    return GENERATORS.load(name).rows(1, "train", range(samples), size)


def make_file(folder: Path, form: str, samples: int) -> Path:
    """A file of generated samples."""
    path = folder / "file.h5"
    rows = rows_of(form, samples)
    middle = samples // 2
    blocks = [tuple(part[:middle] for part in rows), tuple(part[middle:] for part in rows)]
    FORMATS.load(form).write(path, FileLayout(samples, GRIDS[form]), [(first, second) for first, second in blocks])
    return path


def make_science(folder: Path, name: str) -> ScienceManifest:
    """A directory of generated samples."""
    train, validation = COUNTS[name]
    size = {"hep": 16, "ewa": 48, "cos": 8, "cos-fields": 8}[name]
    recipe = ScienceRecipe(name, {"train": train, "validation": validation}, size, seed=5)
    return synthesize(recipe, folder, lambda done, total: None, workers=0)


def opened(name: str, folder: Path, **changes: Any) -> DataSource:
    """The source of that name on a directory."""
    return open_source(request_for(name, folder, **changes), find_set(name, folder))


def together(batches: Any) -> Both:
    """All batches as one."""
    inputs, targets = zip(*batches, strict=True)
    return np.concatenate(inputs), np.concatenate(targets)


def validation(name: str, folder: Path) -> Both:
    """All validation examples, in the order of the files."""
    return together(opened(name, folder).validation_batches(4, RankShare()))


def raw(folder: Path, split: Split) -> tuple[NDArray[Any], NDArray[Any]]:
    """All samples of a split as the files have them."""
    manifest = read_science_manifest(folder)
    parts = []
    for file in manifest.split(split).files:
        found = FORMATS.load(manifest.format).open(folder / file.name)
        parts.append(found.read(0, file.images))
        found.close()
    inputs, targets = zip(*parts, strict=True)
    return np.concatenate(inputs), np.concatenate(targets)
