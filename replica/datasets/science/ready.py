"""`python -m replica.datasets.science.ready FOLDER SIZE make|look WORKLOAD...`: data before a run.

Those of a rehearsal are generated where they are missing, each in its own folder, whole or not at
all; those that are there are looked through. Problems are lines of standard error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from aiperf.config.dataset_manifest import MANIFEST_NAME
from aiperf.errors import AiperfError
from replica.datasets.progress import shown_progress
from replica.datasets.science.synthesize import ScienceRecipe, synthesize
from workloads.data import find_set
from workloads.data.formats import FORMATS
from workloads.data.manifest import read_science_manifest
from workloads.science import SCIENCE
from workloads.science.contract import DataNeeds

SEED = 1
"""All machines rehearse on the same data."""

FIELDS_OF_A_CUBE = 8


def needs_of(workloads: Sequence[str], size: str) -> list[DataNeeds]:
    """The data sets of these workloads, each once."""
    found = {need.folder: need for name in workloads for need in [SCIENCE.load(name).size(size).data]}
    return [found[folder] for folder in sorted(found)]


def problems(folder: Path, need: DataNeeds) -> Iterator[str]:
    """Everything that is wrong with a data set, without a look at its samples."""
    place = folder / need.folder
    try:
        found = find_set(need.source, place)
        if found.input_shape != need.input_shape:
            yield f"{place}: its examples are {found.input_shape}; the workload needs {need.input_shape}"
    except AiperfError as error:
        yield str(error)
    try:
        manifest = read_science_manifest(place)
        form = FORMATS.load(manifest.format)
    except AiperfError:
        return  # as said
    for file in (*manifest.train.files, *manifest.validation.files):
        try:
            opened = form.open(place / file.name)
        except AiperfError as error:
            yield str(error)
            continue
        if (opened.layout.samples, opened.layout.grid) != (file.images, manifest.grid):
            yield f"{place / file.name}: holds other samples than {MANIFEST_NAME} says"
        opened.close()


def make(folder: Path, need: DataNeeds) -> None:
    """Generate the data set of a rehearsal unless it is there. Raises DatasetError, OSError."""
    target = folder / need.folder
    if (target / MANIFEST_NAME).exists():
        return
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    cut = FIELDS_OF_A_CUBE if need.source == "cos-fields" else 1
    grid = need.input_shape[0] * (2 if cut > 1 else 1)
    recipe = ScienceRecipe(
        need.source, {"train": need.train_examples // cut, "validation": need.validation_examples // cut}, grid, SEED
    )
    folder.mkdir(parents=True, exist_ok=True)
    with shown_progress() as report:
        synthesize(recipe, temporary, report, os.cpu_count() or 1)
    try:
        temporary.rename(target)
    except OSError:
        if not (target / MANIFEST_NAME).exists():  # else another run has made the same meanwhile
            raise


def main() -> int:
    """Make and look; the exit code."""
    folder, size, makes, *workloads = sys.argv[1:]
    found: list[str] = []
    for need in needs_of(workloads, size):
        try:
            if makes == "make":
                make(Path(folder), need)
        except (AiperfError, OSError) as error:
            found.append(str(error))
        else:
            found += problems(Path(folder), need)
    for line in found:
        print(line, file=sys.stderr)  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
