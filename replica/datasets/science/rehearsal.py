"""`python -m replica.datasets.science.rehearsal FOLDER WORKLOAD...`: the data of rehearsals.

Each data set is made once, in its own folder, whole or not at all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from aiperf.config.dataset_manifest import MANIFEST_NAME
from aiperf.errors import AiperfError
from replica.datasets.progress import shown_progress
from replica.datasets.science.synthesize import ScienceRecipe, synthesize
from workloads.science import SCIENCE
from workloads.science.contract import DataNeeds

SEED = 1
"""All machines rehearse on the same data."""

FIELDS_OF_A_CUBE = 8


def make(folder: Path, workloads: Sequence[str]) -> None:
    """Generate the rehearsal data of these workloads that are not there. Raises DatasetError."""
    needs = {size.data.folder: size.data for name in workloads for size in [SCIENCE.load(name).rehearsal]}
    for name, need in sorted(needs.items()):
        if not (folder / name / MANIFEST_NAME).exists():
            _make(folder / name, need)


def _make(target: Path, need: DataNeeds) -> None:
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    cut = FIELDS_OF_A_CUBE if need.source == "cos-fields" else 1
    size = need.input_shape[0] * (2 if cut > 1 else 1)
    recipe = ScienceRecipe(
        need.source, {"train": need.train_examples // cut, "validation": need.validation_examples // cut}, size, SEED
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    with shown_progress() as report:
        synthesize(recipe, temporary, report, os.cpu_count() or 1)
    try:
        temporary.rename(target)
    except OSError:
        if not (target / MANIFEST_NAME).exists():  # else another run has made the same meanwhile
            raise


def main() -> int:
    """Make the data; the exit code."""
    try:
        make(Path(sys.argv[1]), sys.argv[2:])
    except (AiperfError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
