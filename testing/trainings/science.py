"""Small files and directories of scientific data."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from replica.datasets.science.synthesize import ScienceRecipe, synthesize
from workloads.data.arrays import Rows
from workloads.data.formats import FORMATS, FileLayout
from workloads.data.generators import GENERATORS
from workloads.data.manifest import ScienceManifest

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
