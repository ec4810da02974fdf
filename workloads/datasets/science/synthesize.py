"""Directories of generated scientific data, whose files are made in parallel."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aiperf.config.dataset_manifest import Split
from aiperf.errors import DatasetError, UsageError
from workloads.data.arrays import Rows
from workloads.data.formats import FORMATS, FileLayout
from workloads.data.generators import GENERATOR_VERSION, GENERATORS
from workloads.data.generators.streams import MOST_SEED, VALIDATION_START
from workloads.data.manifest import Generated, ScienceManifest
from workloads.datasets.prepare import Progress
from workloads.datasets.science.describe import write_description
from workloads.datasets.science.pool import each

BLOCK_BYTES = 16 << 20
"""Bytes of samples that are made before they are written."""


@dataclass(frozen=True, slots=True)
class ScienceRecipe:
    """The recipe of samples: kind, numbers, size and seed."""

    name: str
    images: dict[Split, int]
    size: int
    seed: int


@dataclass(frozen=True, slots=True)
class _Job:
    """One file to make: samples `start` to `stop` of its split."""

    path: Path
    split: Split
    start: int
    stop: int
    recipe: ScienceRecipe


def synthesize(recipe: ScienceRecipe, output: Path, report: Progress, workers: int) -> ScienceManifest:
    """Write all files and dataset.json.

    Raises UsageError for an impossible recipe, DatasetError if the directory is not empty or cannot
    be written.
    """
    names = _checked(recipe)
    if output.exists() and any(output.iterdir()):
        raise DatasetError(f"{output}: is not empty; name a new folder")
    output.mkdir(parents=True, exist_ok=True)
    jobs = [job for split in names for job in _jobs(recipe, split, names[split], output)]
    problems = [problem for problem in each(_write, jobs, workers, report, _lost) if problem]
    if problems:
        raise DatasetError(*problems)
    files = {split: [name for name, _ in own] for split, own in names.items()}
    form = GENERATORS.load(recipe.name).form(recipe.size)
    generated = Generated(name=recipe.name, version=GENERATOR_VERSION, seed=recipe.seed)
    origin = (f"generated ({recipe.name}, version {GENERATOR_VERSION}, seed {recipe.seed})", generated)
    return write_description(output, form, files, origin, report, workers)


def _checked(recipe: ScienceRecipe) -> dict[Split, list[tuple[str, int]]]:
    """Check the recipe; give names and sizes of the files. Raises UsageError."""
    generator = GENERATORS.load(recipe.name)
    if recipe.size not in generator.sizes:
        least, most, step = generator.sizes[0], generator.sizes[-1], generator.sizes.step
        even = ", a multiple of 2" if step == 2 else ""
        raise UsageError(f"--size {recipe.size}: {recipe.name} has sizes from {least} to {most}{even}")
    if not 0 <= recipe.seed <= MOST_SEED:
        raise UsageError(f"--seed {recipe.seed}: seeds are from 0 to {MOST_SEED}")
    if max(recipe.images.values()) > VALIDATION_START:
        raise UsageError(f"at most {VALIDATION_START:,} samples of a split can be made")
    form = FORMATS.load(generator.form(recipe.size))
    return {split: form.new_files(split, images) for split, images in recipe.images.items()}


def _jobs(recipe: ScienceRecipe, split: Split, names: list[tuple[str, int]], output: Path) -> Iterator[_Job]:
    start = 0
    for name, count in names:
        yield _Job(output / name, split, start, start + count, recipe)
        start += count


def _write(job: _Job) -> str | None:
    """Make the samples of one file; give the reason if it cannot be written."""
    recipe = job.recipe
    generator = GENERATORS.load(recipe.name)
    form = FORMATS.load(generator.form(recipe.size))
    # Made twice, once for its size alone: samples of a size are the same whatever the block.
    first = generator.rows(recipe.seed, job.split, range(job.start, job.start + 1), recipe.size)[0]
    at_once = max(form.block, BLOCK_BYTES // first.nbytes // form.block * form.block)

    def blocks() -> Iterator[Rows]:
        for start in range(job.start, job.stop, at_once):
            yield generator.rows(recipe.seed, job.split, range(start, min(start + at_once, job.stop)), recipe.size)

    try:
        form.write(job.path, FileLayout(job.stop - job.start, _grid(first.shape[1:], form.science)), blocks())
    except OSError as error:
        return f"{job.path}: cannot be written: {error.strerror or error}"
    return None


def _grid(shape: tuple[int, ...], science: str) -> tuple[int, ...]:
    return shape[1:] if science == "ewa" else shape[:-1]


def _lost(job: _Job) -> str:
    return f"{job.path}: its process ended; is the memory large enough?"
