"""The datasets of an HDF5 file: their shapes, types, limits, and the values that they may have."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from aiperf.untrusted.reading import shortened

MOST_SAMPLES = 10**8
MOST_SAMPLE_BYTES = 1 << 30
"""Most bytes of a sample in one dataset, and of a chunk: CosmoFlow's whole universe has as many."""

MOST_RATIO, UNPACKED_BYTES = 1100, 1 << 20
"""Most unpacked bytes for a stored one, and bytes that any dataset may have: Deflate packs at most
1032 bytes into one. A file that claims more would fill the memory."""

FILTERS = ("gzip", "shuffle", "fletcher32", "szip", "lzf")
"""Filters of HDF5 that are read: for others its library would load plugins."""

QUOTE = "'"

Values = NDArray[Any]
Sizes = Mapping[str, int]

NUMBERS = ("int32", "int64", "int8", "uint8", "int16", "uint16", "uint32", "uint64", "float32", "float64", "bool")
"""Types that labels may have."""

FILL_VALUES = (
    9.969209968386869e36, 1e15, 1e20, 1e30, 1e35, 1e36, -1e20, -1e30, -1e35, -1e36,
    -999.0, -9999.0, -99999.0, -32767.0, -32768.0, -2147483647.0, -2147483648.0, 1e34, -1e34, 9.999e20, -9.99e8,
    -9.99e33, 3.4028234663852886e38, -3.4028234663852886e38, 1.7976931348623157e308, -1.7976931348623157e308,
)  # fmt: skip
"""Values that stand for missing ones: netCDF's own (netcdf.h, NC_FILL_FLOAT), CF's usual 1e20, and
others that models and tools of weather and climate write (Ferret, GrADS, NOMADS), the extremes of
types included. A file of 64 bits may hold them as 32 bits round them."""

Rule = tuple[str, Callable[[Values, Sizes], NDArray[np.bool_]]]
"""Words for bad samples, and a function that flags them, (N,)."""


@dataclass(frozen=True, slots=True)
class Field:
    """A dataset: its place in the file, and its shape, in which a letter is any size.

    N is the number of samples; the same letter has the same size in all datasets of a file.
    """

    path: str
    shape: tuple[int | str, ...]
    types: tuple[str, ...] = ("float32", "float64")
    """Names of NumPy's types that it may have; new files have the first one."""
    rules: tuple[Rule, ...] = ()
    needed: bool = True
    """False if files may lack it."""


def negative(values: Values, sizes: Sizes) -> NDArray[np.bool_]:
    """Flag samples with a value below 0."""
    return any_of(values < 0)


def neither_0_nor_1(values: Values, sizes: Sizes) -> NDArray[np.bool_]:
    """Flag labels that are neither 0 nor 1."""
    return any_of((values != 0) & (values != 1))


def any_of(flags: Values) -> NDArray[np.bool_]:
    """Flag each sample that has a flag, (N,)."""
    return np.asarray(flags.reshape(len(flags), -1).any(axis=1))


def dataset_of(file: h5py.File, field: Field) -> h5py.Dataset:
    """Find the dataset of a field. Raises ValueError with the reason if it is not safe to read."""
    place: Any = file
    for part in field.path.split("/"):
        link = place.get(part, getlink=True) if isinstance(place, h5py.Group) else None
        if link is None:
            raise ValueError("is missing")
        # A soft or external link may lead to any file of the machine, or in a circle.
        if not isinstance(link, h5py.HardLink):
            raise ValueError("is a link to elsewhere")
        place = place[part]
    if not isinstance(place, h5py.Dataset):
        raise ValueError("is not a dataset")
    _check_storage(place)
    return place


def _check_storage(found: h5py.Dataset) -> None:
    """Raise ValueError unless the values lie in the file, and are no more than it can hold."""
    if found.external is not None or found.is_virtual:
        raise ValueError("keeps its values in other files")
    unknown = [name for name in found._filters if name not in FILTERS]
    if unknown:
        raise ValueError(f"is packed by an unknown filter: {shortened(', '.join(unknown), 40)}")
    if found.shape is None or found.dtype.kind not in "fiub":
        raise ValueError("does not hold numbers")
    samples, *sizes = found.shape or (0,)
    # As floats: a product of forged sizes would overflow int64 to a small number.
    sample = found.dtype.itemsize * int(np.prod([float(size) for size in sizes]))
    chunk = found.dtype.itemsize * int(np.prod([float(size) for size in found.chunks or ()]))
    if samples > MOST_SAMPLES or sample > MOST_SAMPLE_BYTES or chunk > MOST_SAMPLE_BYTES:
        raise ValueError(f"is too large: its shape is {found.shape}")
    stored = found.id.get_storage_size()
    if samples * sample > MOST_RATIO * stored + UNPACKED_BYTES:
        raise ValueError(f"has the shape {found.shape}, but only {stored:,} bytes are stored")


def shape_problem(found: h5py.Dataset, field: Field, sizes: dict[str, int]) -> str | None:
    """Find the problem with a dataset's shape or type; letters that are new go into `sizes`."""
    if found.dtype.name not in field.types:
        return f"has the type {found.dtype.name}, not {' or '.join(field.types)}"
    wanted = [sizes.get(size, size) if isinstance(size, str) else size for size in field.shape]
    fits = len(found.shape) == len(wanted)
    named = dict(sizes)
    for size, want in zip(found.shape, wanted, strict=False):
        if isinstance(want, str):
            fits = fits and size == named.setdefault(want, size) and (size > 0 or want == "N")
        else:
            fits = fits and size == want
    if not fits:
        return f"has the shape {found.shape}, not {str(tuple(wanted)).replace(QUOTE, '')}"
    sizes.update(named)
    return None


def value_problems(field: Field, values: Values, sizes: Sizes, start: int) -> Iterator[tuple[int, str]]:
    """Yield index and words of every bad sample."""
    if values.dtype.kind == "f":
        wrong = np.flatnonzero(any_of(~np.isfinite(values)))
        yield from ((start + int(index), "is not finite") for index in wrong)
        with np.errstate(over="ignore"):  # the values of 64 bits that 32 do not have become infinite
            known = np.array(FILL_VALUES, values.dtype), np.array(FILL_VALUES, np.float32).astype(values.dtype)
        fills = np.isin(values, np.unique(np.concatenate(known))) & np.isfinite(values)
        for index in np.flatnonzero(any_of(fills)):
            value = float(values[index][fills[index]].flat[0])
            yield start + int(index), f"has the fill value {value:g}, which stands for a missing one"
    for words, rule in field.rules:
        with np.errstate(invalid="ignore"):
            bad = rule(values, sizes)
        yield from ((start + int(index), words) for index in np.flatnonzero(bad))
