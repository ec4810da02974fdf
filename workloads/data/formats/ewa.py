"""ExtremeWeather in HDF5: a file a year, `climo_YYYY.h5` (extremeweatherdataset.github.io).

`images` (N, 16, 768, 1152) float32, four a day; `boxes` (N, 15, 5) int32: ymin, xmin, ymax, xmax,
class 0 to 3, unused rows -1 (eracah/hur-detect, `convert_netcdf_files_to_hdf5.py`).
"""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aiperf.config.dataset_manifest import Split
from aiperf.errors import UsageError
from workloads.data.arrays import Rows
from workloads.data.formats.contract import Found
from workloads.data.formats.fields import Field, Sizes, Values, any_of
from workloads.data.formats.hdf5 import FileNames, HDF5Format

IMAGES_A_YEAR = 1460
"""Number of images of a year: one every six hours, on 365 days."""

LEAST_A_FILE = 16
"""Least images of a new file, if there are as many: small sets are spread over few years."""

YEARS: Mapping[Split, tuple[int, ...]] = {
    "train": tuple(year for year in range(1979, 2006) if year not in (1982, 1983, 1984, 1986, 1999)),
    "validation": (1982, 1986),
}
"""Years of each split. 1983 and 1999 are not offered, 1984 is the test set (eracah/hur-detect)."""

TEST_YEAR = 1984
_NAME = re.compile(r"climo_\d{4}\.h5")

CLASSES = 4
UNUSED = -1


def _find(folder: Path) -> Found:
    years = {path.name: int(path.stem[-4:]) for path in folder.glob("climo_*.h5") if _NAME.fullmatch(path.name)}
    held_out = (*YEARS["validation"], TEST_YEAR)
    return {
        "train": sorted(name for name, year in years.items() if year not in held_out),
        "validation": sorted(name for name, year in years.items() if year in YEARS["validation"]),
    }


def _new(split: Split, samples: int) -> list[tuple[str, int]]:
    years = YEARS[split]
    if samples > IMAGES_A_YEAR * len(years):
        raise UsageError(f"{samples} {split} images are too many: {len(years)} years have {IMAGES_A_YEAR} each")
    count = min(len(years), max(1, samples // LEAST_A_FILE))
    return [
        (f"climo_{year}.h5", samples * (number + 1) // count - samples * number // count)
        for number, year in enumerate(years[:count])
    ]


def _of_unknown_class(boxes: Values, sizes: Sizes) -> NDArray[np.bool_]:
    return any_of(_used(boxes) & ((boxes[..., 4] < 0) | (boxes[..., 4] >= CLASSES)))


def _outside(boxes: Values, sizes: Sizes) -> NDArray[np.bool_]:
    top, left, bottom, right = (boxes[..., column] for column in range(4))
    beyond = (top < 0) | (left < 0) | (bottom > sizes["H"]) | (right > sizes["W"])
    return any_of(_used(boxes) & beyond)


def _empty(boxes: Values, sizes: Sizes) -> NDArray[np.bool_]:
    top, left, bottom, right = (boxes[..., column] for column in range(4))
    return any_of(_used(boxes) & ((top >= bottom) | (left >= right)))


def _used(boxes: Values) -> NDArray[np.bool_]:
    return np.asarray((boxes != UNUSED).any(axis=-1))


def _rows(values: Mapping[str, Values]) -> Rows:
    limits = np.iinfo(np.int32)
    # int64 in a file may not fit: clipped, such a box is still out of the image, and reported.
    boxes = np.clip(values["boxes"], limits.min, limits.max)
    return values["images"].astype(np.float32, copy=False), boxes.astype(np.int32, copy=False)


def _fields(rows: Rows) -> Mapping[str, Values]:
    return {"images": rows[0], "boxes": rows[1]}


EWA = HDF5Format(
    "ewa",
    "ewa",
    (
        Field("images", ("N", 16, "H", "W")),
        Field(
            "boxes",
            ("N", 15, 5),
            ("int32", "int64", "int16"),
            (
                ("has a box outside of the image", _outside),
                ("has an empty box", _empty),
                (f"has a box of an unknown class; known are 0 to {CLASSES - 1}", _of_unknown_class),
            ),
        ),
    ),
    ("H", "W"),
    FileNames(_find, _new),
    _rows,
    _fields,
)
