"""CosmoFlow's cubes in HDF5: `x` (N, n, n, n, 4) int16 counts, `y` (N, 4) float32 parameters.

The parameters Omega_m, sigma_8, n_s and H_0 are scaled to -1 to 1 (mlcommons/hpc, cosmoflow).
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aiperf.config.dataset_manifest import Split
from workloads.data.arrays import Rows
from workloads.data.formats.contract import Found, matching, numbered
from workloads.data.formats.fields import Field, Rule, Sizes, Values, any_of, negative
from workloads.data.formats.hdf5 import FileNames, HDF5Format

MOST_SAMPLES_A_FILE = 256
"""Most samples of a new file, so that several are made in parallel."""

ROUNDING = 1e-5
"""Distance by which a parameter at the end of its range may be rounded beyond it."""


def _outside(parameters: Values, sizes: Sizes) -> NDArray[np.bool_]:
    return any_of(np.abs(parameters) > 1 + ROUNDING)


COUNT_RULE: Rule = ("has a negative count", negative)
PARAMETER_RULE: Rule = ("has a parameter outside of -1 to 1", _outside)


def _find(folder: Path) -> Found:
    def patterns(stem: str, subfolder: str) -> tuple[str, ...]:
        return tuple(f"{place}.{suffix}" for place in (f"{stem}*", f"{subfolder}/*") for suffix in ("hdf5", "h5"))

    return matching(folder, {"train": patterns("train", "train"), "validation": patterns("val", "validation")})


def _new(split: Split, samples: int) -> list[tuple[str, int]]:
    return numbered(split, ".hdf5", samples, MOST_SAMPLES_A_FILE)


def _rows(values: Mapping[str, Values]) -> Rows:
    return values["x"], values["y"].astype(np.float32, copy=False)


def _fields(rows: Rows) -> Mapping[str, Values]:
    return {"x": rows[0], "y": rows[1]}


COSMOFLOW = HDF5Format(
    "cosmoflow",
    "cos",
    (
        Field("x", ("N", "n", "n", "n", 4), ("int16",), (COUNT_RULE,)),
        Field("y", ("N", 4), rules=(PARAMETER_RULE,)),
    ),
    ("n", "n", "n"),
    FileNames(_find, _new),
    _rows,
    _fields,
)
