"""CosmoFlow's simulated universes, cut into the cubes that are trained.

A universe is a file of HDF5 with `full` (512, 512, 512, 4) counts at four redshifts and `unitPar`
(4,) parameters (mlcommons/hpc, `cosmoflow/prepare.py`); it gives 64 cubes of 128^3.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from aiperf.config.dataset_manifest import SPLITS, Split
from aiperf.errors import DatasetError
from aiperf.untrusted.folders import files_below, is_technical
from aiperf.untrusted.reading import reason_of
from aiperf.untrusted.recognition import described_file
from workloads.data.arrays import Rows
from workloads.data.formats import FORMATS, FileLayout
from workloads.data.formats.fields import Field, dataset_of, shape_problem
from workloads.data.manifest import ScienceManifest
from workloads.datasets.preparation import ClassCount, Preparation, by_kind, write_report
from workloads.datasets.prepare import Progress
from workloads.datasets.science.describe import write_description
from workloads.datasets.science.pool import each
from workloads.datasets.sources import TECHNICAL

CUTS = 4
"""Number of cubes along a side of a universe."""

EVERY = 9
"""Interval of the universes that validate: a ninth, as 65,536 of 589,824 samples in MLPerf HPC."""

FIELDS = (
    Field("full", ("N", "N", "N", 4), ("int16", "uint16", "int32")),
    Field("unitPar", (4,)),
)


@dataclass(frozen=True, slots=True)
class _Job:
    source: Path
    target: Path


def universes(folder: Path) -> list[Path]:
    """The universes below a folder, in order of their paths."""
    return [path for path in sorted(folder.rglob("*.hdf5")) if _is_universe(path)]


def cut(folder: Path, output: Path, report: Progress, workers: int) -> ScienceManifest:
    """Write the cubes of all universes, then dataset.json.

    Universes that are cut already are not cut again. Raises DatasetError naming all problems.
    """
    found = universes(folder)
    if damaged := [path for path in sorted(folder.rglob("*.hdf5")) if not h5py.is_hdf5(path)]:
        raise DatasetError(*(f"{path}: is {described_file(path)}, and an HDF5 file is wanted" for path in damaged[:20]))
    if len(found) < 2:
        raise DatasetError(f"{folder}: two universes are needed, one to train and one to validate; found {len(found)}")
    names = _names(found)
    output.mkdir(parents=True, exist_ok=True)
    jobs = [
        _Job(source, output / name) for split in SPLITS for source, name in names[split] if not (output / name).exists()
    ]
    problems = [problem for problem in each(_cut, jobs, workers, report, _lost) if problem]
    if problems:
        raise DatasetError(*problems)
    files = {split: [name for _, name in names[split]] for split in SPLITS}
    manifest = write_description(output, "cosmoflow", files, ("CosmoFlow's universes", None), report, workers)
    write_report(
        output,
        Preparation(
            source=f"universes {folder}",
            fingerprint=manifest.fingerprint,
            images=ClassCount(train=manifest.train.images, validation=manifest.validation.images),
            classes={},
            converted={},
            left_out=by_kind(_left_out(folder, found, output)),
        ),
    )
    return manifest


def _left_out(folder: Path, found: Sequence[Path], output: Path) -> Iterator[tuple[str, str]]:
    """Yield name and reason of all files that are not universes."""
    universes = set(found)
    for name in sorted(files_below(folder, file_systems_own=True)):
        path = folder / name
        if path in universes or output in path.parents:
            continue
        if is_technical(path.name):
            yield name, TECHNICAL
        elif path.suffix == ".hdf5":
            yield name, "no universe: it lacks full"
        else:
            yield name, f"the suffix {path.suffix!r}"


def _names(found: Sequence[Path]) -> dict[Split, list[tuple[Path, str]]]:
    # Few universes: the last of them validates, so that neither split is empty.
    every = min(EVERY, len(found))
    validation = set(found[every - 1 :: every])
    splits: dict[Split, list[tuple[Path, str]]] = {"train": [], "validation": []}
    for number, path in enumerate(found):
        split: Split = "validation" if path in validation else "train"
        splits[split].append((path, f"{split}-{number:05d}.hdf5"))
    return splits


def _is_universe(path: Path) -> bool:
    try:
        with h5py.File(path, "r", locking=False) as file:
            return "full" in file
    except Exception:  # of any kind: h5py raises what it comes across
        return False


def _cut(job: _Job) -> str | None:
    """Cut one universe; give the reason if it cannot be cut."""
    try:
        with h5py.File(job.source, "r", locking=False) as file:
            sizes: dict[str, int] = {}
            for field in FIELDS:
                problem = shape_problem(dataset_of(file, field), field, sizes)
                if problem is not None:
                    return f"{job.source}: {field.path} {problem}"
            if sizes["N"] % CUTS:
                return f"{job.source}: full has sides of {sizes['N']}, which cannot be cut into {CUTS}"
            side = sizes["N"] // CUTS
            FORMATS.load("cosmoflow").write(job.target, FileLayout(CUTS**3, (side,) * 3), _cubes(file, side))
    except Exception as error:  # of any kind: h5py raises what it comes across
        return f"{job.source}: {reason_of(error)}"
    return None


def _cubes(file: h5py.File, side: int) -> Iterator[Rows]:
    parameters = file["unitPar"][:].astype(np.float32)[None]
    for place in np.ndindex(CUTS, CUTS, CUTS):
        x, y, z = (slice(start * side, (start + 1) * side) for start in place)
        counts = file["full"][x, y, z]
        if counts.min() < 0 or counts.max() > np.iinfo(np.int16).max:
            raise ValueError("full has counts that 16 bits do not hold, or negative ones")
        yield counts.astype(np.int16)[None], parameters


def _lost(job: _Job) -> str:
    return f"{job.source}: the library that reads it ended its process"
