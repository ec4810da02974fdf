"""Rows of scientific data from other people: descriptions, files of HDF5, TFRecords, universes."""

import functools
import gzip
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py

from aiperf.config.dataset_manifest import MANIFEST_NAME
from aiperf.errors import DatasetError
from tests.hardening.corpus.case import Case, complaint, variants
from tests.support.trainings.science import SIZES, make_file, rows_of
from tests.unit.workloads.data.test_formats import HOSTILE
from tests.unit.workloads.data.test_records import RECORDS, record
from workloads.data import find_set
from workloads.data.examine import examine_file
from workloads.datasets.science.check import check
from workloads.datasets.science.universes import cut

FILE = {"name": "climo_1979.h5", "images": 1, "size_bytes": 1, "sha256": "0" * 64}
GOOD: dict[str, Any] = {
    "format": "ewa",
    "source": "here",
    "grid": [48, 72],
    "channels": [{"name": "PSL", "mean": 1.0, "std": 2.0}],
    "train": {"files": [FILE], "fingerprint": "0" * 64},
    "validation": {"files": [FILE], "fingerprint": "0" * 64},
    "fingerprint": "f5a5fd42d16a20302798ef6ed309979b43003d2320d9f0e8ea9831a92759fb4b",
}
"""Its fingerprint is the SHA-256 of 64 zeros."""


def changed(**to: object) -> bytes:
    """The description with other values."""
    return json.dumps({**GOOD, **to}).encode()


DESCRIPTIONS = {
    "nothing": b"",
    "a list": b"[]",
    "deep": b'{"format": "ewa", "a":' * 10_000,
    "no files": changed(train={"files": []}),
    "a name that leads out": changed(train={"files": [{**FILE, "name": "../x"}], "fingerprint": "0" * 64}),
    "an absolute name": changed(train={"files": [{**FILE, "name": "/etc/passwd"}], "fingerprint": "0" * 64}),
    "a huge grid": changed(grid=[10**9, 10**9]),
    "an empty grid": changed(grid=[]),
    "no grid": changed(grid=[0, 0]),
    "another format": changed(format="netcdf"),
    "NaN": b'{"format": "ewa", "grid": [NaN, 3]}',
    "an infinite mean": changed(channels=[{"name": "PSL", "mean": 1e999, "std": 1}]),
    "a negative spread": changed(channels=[{"name": "PSL", "mean": 1, "std": -1}]),
    "another fingerprint": changed(fingerprint="1" * 64),
    "a generator": changed(generated={"name": "x", "seed": []}),
}


def rows() -> Iterator[Case]:
    """All of them."""
    for name, content in (DESCRIPTIONS | dict(variants(json.dumps(GOOD).encode(), 40))).items():
        yield Case(f"description: {name}", functools.partial(_description, content))
    for form in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            honest = make_file(Path(folder), form, 3).read_bytes()
        for name, content in variants(honest, 25):
            yield Case(f"{form}: {name}", functools.partial(_file, content, form))
    for name in HOSTILE:
        yield Case(f"ewa: {name}", functools.partial(_hostile, name))
    (inputs,), (targets,) = rows_of("cosmoflow", 1)
    good = record(x=inputs.tobytes(), y=targets.tobytes())
    contents = {name: content for name, (content, _) in RECORDS.items()}
    contents |= {f"packed, {name}": content for name, content in variants(gzip.compress(good), 8)}
    for name, content in (contents | dict(variants(good, 15))).items():
        yield Case(f"record: {name}", functools.partial(_file, content, "cosmoflow-tfrecord"))
    yield Case("universes that are none", _universes)


def _description(content: bytes, folder: Path) -> str:
    (folder / MANIFEST_NAME).write_bytes(content)
    found = complaint(lambda: find_set("ewa", folder))
    return found + complaint(lambda: check(folder, lambda *_: None, 0))


def _file(content: bytes, form: str, folder: Path) -> str:
    (folder / "file.h5").write_bytes(content)
    return _examined(folder, form)


def _hostile(name: str, folder: Path) -> str:
    with h5py.File(make_file(folder, "ewa", 3), "r+") as file:
        HOSTILE[name][0](file)
    return _examined(folder, "ewa")


def _examined(folder: Path, form: str) -> str:
    problems = examine_file(folder, "file.h5", form).problems
    return complaint(lambda: _refuse(problems)) if problems else ""


def _refuse(problems: tuple[str, ...]) -> None:
    raise DatasetError(*problems[:5])


def _universes(folder: Path) -> str:
    (folder / "a.hdf5").write_bytes(b"none")
    with h5py.File(folder / "b.hdf5", "w") as file:
        file["full"] = 3
    return complaint(lambda: cut(folder, folder / "out", lambda *_: None, 0))
