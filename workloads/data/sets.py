"""Sets of scientific data that are trained: their names, sizes and shapes."""

from dataclasses import dataclass
from pathlib import Path

from aiperf.errors import DatasetError
from workloads.data.manifest import ScienceManifest, file_problems, read_science_manifest

NOISE = 64
"""Count of the numbers that a generator of fields starts from (cosmoGAN)."""

CUBES_A_CUBE = SLICES_A_CUBE = 8
"""Number of fields that are cut from one cube: its octants, or planes of equal distances."""

BOXES = 15
"""Number of rows for the boxes of a weather image; its target has one more, for a drawn number."""

MOST_SHOWN = 5

LARGEST_CROP = 768
"""Most columns of a half-labelled set's images: wider ones are cropped (Kurth et al. 2017)."""

KINDS: dict[str, str] = {
    "hep": "hep",
    "ewa": "ewa",
    "cos": "cos",
    "cos-fields": "cos",
    "cos-slices": "cos",
    "ewa-semi": "ewa",
}
"""Kind of the samples that a set reads, by the set's name."""


@dataclass(frozen=True, slots=True)
class ScienceSet:
    """An opened directory of scientific data."""

    name: str
    train_images: int
    validation_images: int
    input_shape: tuple[int, ...]
    """Shape of the input of one example."""
    target_shape: tuple[int, ...]
    """Shape of the target of one example."""
    fingerprint: str
    generated: bool
    """True for generated samples, False for real data."""
    test_images: int = 0
    """Number of examples of the test split; 0 if the set has none."""


def find_set(name: str, data_dir: str | Path | None) -> ScienceSet:
    """Find the set of a name in a directory.

    Raises DatasetError naming the problems of the directory, without a look into its files, which
    is that of `aiperf dataset check`.
    """
    if name not in KINDS:
        raise DatasetError(f"unknown scientific data {name!r}; known: {', '.join(KINDS)}")
    if data_dir is None:
        raise DatasetError(f"data set {name!r} needs a directory; generate one with: aiperf dataset synthesize {name}")
    folder = Path(data_dir)
    manifest = read_science_manifest(folder)
    kind = kind_of(manifest)
    # Several sets read the same kind of files: fields and slices are cut from cubes.
    if kind != KINDS[name]:
        raise DatasetError(f"{folder}: holds {kind}, as its format {manifest.format} says, and not {name}")
    # Sizes only: a run must not read terabytes before it starts.
    problems = file_problems(folder, manifest)
    if problems:
        rest = len(problems) - MOST_SHOWN
        more = (f"and {rest} more; list them with: aiperf dataset check {folder}",) if rest > 0 else ()
        raise DatasetError(*(f"{folder}: {problem}" for problem in problems[:MOST_SHOWN]), *more)
    fields = {"cos-fields": CUBES_A_CUBE, "cos-slices": SLICES_A_CUBE}.get(name, 1)
    inputs, targets = shapes(name, manifest.grid)
    return ScienceSet(
        name,
        manifest.train.images * fields,
        manifest.validation.images * fields,
        inputs,
        targets,
        manifest.fingerprint,
        manifest.generated is not None,
        manifest.test.images * fields if manifest.test is not None else 0,
    )


def kind_of(manifest: ScienceManifest) -> str:
    """The kind of samples: hep, ewa or cos."""
    return manifest.format.partition("-")[0].replace("cosmoflow", "cos")


def shapes(name: str, grid: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of an example's inputs and targets, by the grid of the files."""
    if name == "hep":
        return (*grid, 3), (3,)
    if name == "ewa":
        return (*grid, 16), (BOXES + 1, 5)
    if name == "ewa-semi":
        return (grid[0], min(grid[1], LARGEST_CROP), 16), (BOXES + 1, 5)
    if name == "cos":
        return (*grid, 4), (4,)
    if name == "cos-fields":
        return (*(size // 2 for size in grid), 1), (NOISE + 1,)
    return (*grid[1:], 1), (NOISE + 1,)
