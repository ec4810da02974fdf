"""Data before a run: `python -m workloads.datasets.science.ready FOLDER SIZE make|look NAME...`.

Missing data sets of a rehearsal are generated, each in its own folder, whole or not at all; others
are looked through. Problems are lines of standard error.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from aiperf.config.dataset_manifest import MANIFEST_NAME, Split
from aiperf.errors import AiperfError
from aiperf.host import this_host
from workloads.data import find_set
from workloads.data.generators import GENERATORS
from workloads.data.manifest import layout_problems, read_science_manifest
from workloads.data.sets import CUBES_A_CUBE, KINDS
from workloads.datasets.progress import shown_progress
from workloads.datasets.science.synthesize import ScienceRecipe, synthesize
from workloads.science import SCIENCE
from workloads.science.contract import DataNeeds

SEED = 1
"""Seed of the generated data: all machines rehearse on the same."""


def needs_of(workloads: Sequence[str], size: str) -> list[DataNeeds]:
    """List the data sets of these workloads, each once for every way to read it."""
    found = {(need.folder, need.source): need for name in workloads for need in [SCIENCE.load(name).size(size).data]}
    return [found[key] for key in sorted(found)]


def problems(folder: Path, need: DataNeeds) -> Iterator[str]:
    """Yield all problems of a data set, without a look at its samples."""
    place = folder / need.folder
    try:
        found = find_set(need.source, place)
        if found.input_shape != need.input_shape:
            yield f"{place}: its examples are {found.input_shape}; the workload needs {need.input_shape}"
    except AiperfError as error:
        yield str(error)
    with contextlib.suppress(AiperfError):  # `find_set` has raised the same, and it is reported
        yield from layout_problems(place, read_science_manifest(place))


def make(folder: Path, need: DataNeeds) -> None:
    """Generate the data set of a rehearsal unless it is there. Raises DatasetError, OSError."""
    target = folder / need.folder
    if (target / MANIFEST_NAME).exists():
        return
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    folder.mkdir(parents=True, exist_ok=True)
    with shown_progress() as report:
        synthesize(recipe_of(need), temporary, report, this_host().usable_cpus())
    try:
        # One rename makes the whole folder appear: a run that looks meanwhile finds all of it or
        # nothing.
        temporary.rename(target)
    except OSError:
        if not (target / MANIFEST_NAME).exists():  # else another run has made the same meanwhile
            raise


def recipe_of(need: DataNeeds) -> ScienceRecipe:
    """The recipe of the samples to generate; a field is an octant of a cube."""
    cut, side = (CUBES_A_CUBE, 2) if need.source == "cos-fields" else (1, 1)
    images: dict[Split, int] = {"train": need.train_examples // cut, "validation": need.validation_examples // cut}
    if need.test_examples:
        images["test"] = need.test_examples // cut
    name = need.source if need.source in GENERATORS else KINDS[need.source]
    return ScienceRecipe(name, images, side * need.input_shape[0], SEED)


def main() -> int:
    """Make the data sets if asked to, and look through them; give the exit code."""
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
