"""Images of collisions in HDF5, 64 x 64 and 224 x 224.

64: `train.h5`, `val.h5` and `test.h5` with a group `all_events` (eracah/atlas_dl,
NERSC/cori-intml-examples). 224: `*train*.h5`, `*val*.h5` and `*test*.h5` (NERSC/hep_cnn_benchmark,
`utils.py`). A test split is left out if its files are.
Energies are in GeV.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from aiperf.config.dataset_manifest import Split
from workloads.data.arrays import Rows
from workloads.data.formats.contract import Found, matching, numbered
from workloads.data.formats.fields import NUMBERS, Field, Values, negative, neither_0_nor_1
from workloads.data.formats.hdf5 import FileNames, HDF5Format

STEMS: Mapping[Split, str] = {"train": "train", "validation": "val", "test": "test"}

MOST_SAMPLES_A_FILE = 10_000
"""Most samples of a new file, so that several are made in parallel."""

_HISTOGRAMS = ("all_events/hist", "all_events/histEM", "all_events/histtrack")
_NOT_NEGATIVE = (("is negative", negative),)
_LABEL = (("is neither 0 nor 1", neither_0_nor_1),)


def _find_64(folder: Path) -> Found:
    return matching(folder, {split: (f"{stem}.h5", f"{stem}-*.h5") for split, stem in STEMS.items()})


def _find_224(folder: Path) -> Found:
    return matching(folder, {split: (f"*{stem}*.h5",) for split, stem in STEMS.items()})


def _new_64(split: Split, samples: int) -> list[tuple[str, int]]:
    return numbered(STEMS[split], ".h5", samples, MOST_SAMPLES_A_FILE)


def _new_224(split: Split, samples: int) -> list[tuple[str, int]]:
    return numbered(f"hep_{STEMS[split]}", ".h5", samples, MOST_SAMPLES_A_FILE)


def _rows_64(values: Mapping[str, Values]) -> Rows:
    inputs = np.stack([values[path] for path in _HISTOGRAMS], axis=-1)
    return inputs.astype(np.float32, copy=False), _targets(values["all_events/y"], values["all_events/passSR"])


def _fields_64(rows: Rows) -> Mapping[str, Values]:
    inputs, targets = rows
    ones = np.ones(len(inputs), np.float32)
    return {
        **{path: inputs[..., channel] for channel, path in enumerate(_HISTOGRAMS)},
        "all_events/y": targets[:, 0],
        "all_events/passSR": targets[:, 1],
        "all_events/weight": ones,
        "all_events/normalized_weight": ones,
    }


def _rows_224(values: Mapping[str, Values]) -> Rows:
    inputs = np.ascontiguousarray(np.moveaxis(values["data"], 1, -1), np.float32)
    return inputs, _targets(values["label"], values["psr"])


def _fields_224(rows: Rows) -> Mapping[str, Values]:
    inputs, targets = rows
    ones = np.ones(len(inputs), np.float32)
    return {
        "data": np.moveaxis(inputs, -1, 1),
        "label": targets[:, 0],
        "psr": targets[:, 1],
        "weight": ones,
        "normweight": ones,
    }


def _targets(labels: Values, selected: Values) -> Values:
    return np.stack([labels, selected], axis=-1).astype(np.float32)


HEP_64 = HDF5Format(
    "hep-64",
    "hep",
    (
        *(Field(path, ("N", "S", "S"), rules=_NOT_NEGATIVE) for path in _HISTOGRAMS),
        Field("all_events/y", ("N",), NUMBERS, _LABEL),
        Field("all_events/passSR", ("N",), NUMBERS, _LABEL),
        Field("all_events/weight", ("N",), needed=False),
        Field("all_events/normalized_weight", ("N",), needed=False),
    ),
    ("S", "S"),
    FileNames(_find_64, _new_64),
    _rows_64,
    _fields_64,
    block=64,
)

HEP_224 = HDF5Format(
    "hep-224",
    "hep",
    (
        Field("data", ("N", 3, "S", "S"), rules=_NOT_NEGATIVE),
        Field("label", ("N",), NUMBERS, _LABEL),
        Field("psr", ("N",), NUMBERS, _LABEL),
        Field("weight", ("N",), needed=False),
        Field("normweight", ("N",), needed=False),
    ),
    ("S", "S"),
    FileNames(_find_224, _new_224),
    _rows_224,
    _fields_224,
    block=16,
)
