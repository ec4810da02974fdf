"""Real file formats: what is written is read again, and all damage is named at once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from aiperf.config.dataset_manifest import SPLITS
from aiperf.errors import DatasetError, UsageError
from tests.support.trainings.science import GRIDS, SIZES, make_file, rows_of
from workloads.data.arrays import Moments, entries_of
from workloads.data.examine import examine_file
from workloads.data.formats import FORMATS, FileLayout
from workloads.data.formats.hdf5 import sample_chunk, unpacks, unshuffled

WRITTEN = [name for name in FORMATS if name != "cosmoflow-tfrecord"]
SAMPLES = 5


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_is_read_again(name: str, tmp_path: Path) -> None:
    rows = rows_of(name, SAMPLES)
    opened = FORMATS.load(name).open(make_file(tmp_path, name, SAMPLES))
    assert opened.layout == FileLayout(SAMPLES, GRIDS[name])
    for start, stop in ((0, SAMPLES), (1, 4), (3, 4)):
        found = opened.read(start, stop)
        for part, wanted in zip(found, rows, strict=True):
            assert part.dtype == wanted.dtype
            np.testing.assert_array_equal(part, wanted[start:stop])
        assert list(opened.problems(start, found)) == []
    opened.close()


@pytest.mark.parametrize("name", WRITTEN)
def test_new_files_of_a_split_hold_all_samples(name: str, tmp_path: Path) -> None:
    form = FORMATS.load(name)
    for samples in (1, 17, 1000):
        names = form.new_files("train", samples)
        assert sum(count for _, count in names) == samples
        assert min(count for _, count in names) > 0
        for split in ("train", "validation"):
            for file, _ in form.new_files(split, samples):
                (tmp_path / file).touch()
    found = form.find(tmp_path)
    assert all(found[split] for split in SPLITS)
    assert not set(found["train"]) & set(found["validation"])
    assert not found.get("test")
    if form.science == "hep":
        (first, _), *_ = form.new_files("test", 17)
        (tmp_path / first).touch()
        assert form.find(tmp_path) == {**found, "test": [first]}


def test_years_of_weather_are_split_as_published() -> None:
    form = FORMATS.load("ewa")
    names = form.new_files("train", 22 * 1460)
    assert len(names) == 22
    assert {count for _, count in names} == {1460}
    assert {name for name, _ in form.new_files("validation", 2920)} == {"climo_1982.h5", "climo_1986.h5"}
    assert not {name for name, _ in names} & {f"climo_{year}.h5" for year in (1982, 1983, 1984, 1986, 1999)}
    with pytest.raises(UsageError, match="2921 validation images are too many: 2 years have 1460 each"):
        form.new_files("validation", 2921)


def damaged(path: Path, change: Callable[[h5py.File], object]) -> Path:
    with h5py.File(path, "r+") as file:
        change(file)
    return path


def replaced(file: h5py.File, name: str, values: Any, **options: Any) -> None:
    del file[name]
    file.create_dataset(name, data=values, **options)


def test_all_problems_of_values_are_named_by_dataset_and_index(tmp_path: Path) -> None:
    path = make_file(tmp_path, "ewa", SAMPLES)

    def change(file: h5py.File) -> None:
        file["images"][1, 3, 0, 0] = np.nan
        file["images"][4, 0, 5, 5] = np.inf
        file["boxes"][0, 0] = (0, 0, 200, 10, 1)
        file["boxes"][2, 1] = (5, 5, 5, 9, 0)
        file["boxes"][3, 2] = (1, 1, 9, 9, 4)

    found = examine_file(tmp_path, damaged(path, change).name, "ewa")
    assert sorted(found.problems) == [
        "file.h5: boxes, index 0: has a box outside of the image",
        "file.h5: boxes, index 2: has an empty box",
        "file.h5: boxes, index 3: has a box of an unknown class; known are 0 to 3",
        "file.h5: images, index 1: is not finite",
        "file.h5: images, index 4: is not finite",
    ]


def test_labels_counts_and_parameters_have_their_ranges(tmp_path: Path) -> None:
    def labels(file: h5py.File) -> None:
        file["all_events/y"][3] = 2
        file["all_events/passSR"][0] = -1
        file["all_events/hist"][2, 0, 0] = -1e-3

    damaged(make_file(tmp_path, "hep-64", SAMPLES), labels)
    assert sorted(examine_file(tmp_path, "file.h5", "hep-64").problems) == [
        "file.h5: all_events/hist, index 2: is negative",
        "file.h5: all_events/passSR, index 0: is neither 0 nor 1",
        "file.h5: all_events/y, index 3: is neither 0 nor 1",
    ]

    def counts(file: h5py.File) -> None:
        file["x"][1, 0, 0, 0, 0] = -1
        file["y"][0, 2] = 1.5
        file["y"][4] = np.nan

    damaged(make_file(tmp_path, "cosmoflow", SAMPLES), counts)
    assert sorted(examine_file(tmp_path, "file.h5", "cosmoflow").problems) == [
        "file.h5: x, index 1: has a negative count",
        "file.h5: y, index 0: has a parameter outside of -1 to 1",
        "file.h5: y, index 4: is not finite",
    ]


def test_many_problems_of_a_kind_are_counted_and_do_not_hide_others(tmp_path: Path) -> None:
    def change(file: h5py.File) -> None:
        file["x"][:] = -1
        file["y"][3] = 7

    damaged(make_file(tmp_path, "cosmoflow", 12), change)
    problems = examine_file(tmp_path, "file.h5", "cosmoflow").problems
    assert len(problems) == 5 + 1 + 1
    assert "file.h5: y, index 3: has a parameter outside of -1 to 1" in problems
    assert problems[-1] == "file.h5: and 7 more problems"


def test_all_problems_of_a_layout_are_named(tmp_path: Path) -> None:
    def change(file: h5py.File) -> None:
        del file["all_events/histEM"]
        replaced(file, "all_events/histtrack", np.zeros((SAMPLES, 16, 15), np.float32))
        replaced(file, "all_events/y", np.zeros(SAMPLES - 1, np.int32))
        replaced(file, "all_events/passSR", np.full(SAMPLES, b"yes"))

    path = damaged(make_file(tmp_path, "hep-64", SAMPLES), change)
    with pytest.raises(DatasetError) as raised:
        FORMATS.load("hep-64").open(path)
    assert raised.value.lines == (
        "file.h5: all_events/histEM is missing",
        f"file.h5: all_events/histtrack has the shape ({SAMPLES}, 16, 15), not ({SAMPLES}, 16, 16)",
        f"file.h5: all_events/y has the shape ({SAMPLES - 1},), not ({SAMPLES},)",
        "file.h5: all_events/passSR does not hold numbers",
    )
    assert examine_file(tmp_path, "file.h5", "hep-64").problems == raised.value.lines


def test_a_truncated_file_and_one_that_is_none_are_refused(tmp_path: Path) -> None:
    path = make_file(tmp_path, "ewa", SAMPLES)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DatasetError, match=r"file\.h5: cannot be opened as HDF5: .*truncated"):
        FORMATS.load("ewa").open(path)
    (problem,) = examine_file(tmp_path, "file.h5", "ewa").problems
    assert problem.startswith("file.h5: cannot be opened as HDF5")
    path.write_bytes(b"not HDF5" * 100)
    with pytest.raises(DatasetError, match="cannot be opened as HDF5"):
        FORMATS.load("ewa").open(path)
    assert examine_file(tmp_path, "none.h5", "ewa").problems == ("none.h5: No such file or directory",)


def test_a_damaged_chunk_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    path = make_file(tmp_path, "ewa", SAMPLES)
    with h5py.File(path, "r") as file:
        place = file["images"].id.get_chunk_info(2)
    data = bytearray(path.read_bytes())
    start = place.byte_offset + place.size // 2
    data[start : start + 64] = b"\xff" * 64
    path.write_bytes(data)
    found = examine_file(tmp_path, "file.h5", "ewa")
    (problem,) = found.problems
    assert problem.startswith("file.h5: images, index 2: cannot be read: its chunk is damaged")
    rows = rows_of("ewa", SAMPLES)
    kept = [index for index in range(SAMPLES) if index != 2]
    assert found.entries == entries_of((rows[0][kept], rows[1][kept]))


def empty(file: h5py.File) -> None:
    replaced(file, "images", np.zeros((0, 16, 9, 9), np.float32))
    replaced(file, "boxes", np.zeros((0, 15, 5), np.int32))


def huge(file: h5py.File) -> None:
    del file["images"]
    file.create_dataset("images", (10**6, 16, 96, 144), np.float32, chunks=(1, 16, 96, 144))
    replaced(file, "boxes", np.full((1, 15, 5), -1, np.int32))


HOSTILE: dict[str, tuple[Callable[[h5py.File], object], str]] = {
    "samples that are not stored": (huge, "images has the shape .*, but only 0 bytes are stored"),
    "a sample of a terabyte": (
        lambda file: (file.pop("images"), file.create_dataset("images", (1, 16, 1 << 17, 1 << 17), "f4", chunks=True)),
        "images is too large",
    ),
    "a link to another file": (
        lambda file: (file.pop("images"), file.__setitem__("images", h5py.ExternalLink("/etc/passwd", "x"))),
        "images is a link to elsewhere",
    ),
    "a soft link to itself": (
        lambda file: (file.pop("images"), file.__setitem__("images", h5py.SoftLink("/images"))),
        "images is a link to elsewhere",
    ),
    "values in another file": (
        lambda file: (
            file.pop("boxes"),
            file.create_dataset("boxes", (5, 15, 5), "i4", external=[("/etc/passwd", 0, 1500)]),
        ),
        "boxes keeps its values in other files",
    ),
    "a group": (lambda file: (file.pop("images"), file.create_group("images")), "images is not a dataset"),
    "text": (lambda file: replaced(file, "boxes", "boxes"), "boxes does not hold numbers"),
    "a number": (lambda file: replaced(file, "boxes", 3), r"boxes has the shape \(\), not"),
    "complex numbers": (lambda file: replaced(file, "images", np.zeros((5, 16, 9, 9), "c8")), "does not hold numbers"),
    "no samples": (empty, "holds no samples"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_are_refused_before_anything_is_read(kind: str, tmp_path: Path) -> None:
    change, message = HOSTILE[kind]
    path = damaged(make_file(tmp_path, "ewa", SAMPLES), change)
    with pytest.raises(DatasetError, match=message):
        FORMATS.load("ewa").open(path)


def test_values_of_other_types_become_those_of_the_format(tmp_path: Path) -> None:
    path = make_file(tmp_path, "hep-64", SAMPLES)

    def change(file: h5py.File) -> None:
        for name in ("all_events/hist", "all_events/y"):
            replaced(file, name, file[name][:].astype(np.float64))

    opened = FORMATS.load("hep-64").open(damaged(path, change))
    found, wanted = opened.read(0, SAMPLES), rows_of("hep-64", SAMPLES)
    for part, other in zip(found, wanted, strict=True):
        assert part.dtype == np.float32
        np.testing.assert_array_equal(part, other)


@pytest.mark.parametrize("options", [{}, {"compression": 4}, {"compression": 1, "shuffle": True}, {"fletcher32": True}])
@pytest.mark.parametrize("kind", ["int16", "float32", "float64", ">f4"])
def test_chunks_are_unpacked_as_hdf5_unpacks_them(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    values = np.random.default_rng(1).integers(0, 500, (4, 6, 7)).astype(kind)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", data=values, chunks=(1, 6, 7), **options)
        assert unpacks(dataset) == ("fletcher32" not in options and kind != ">f4")
        if unpacks(dataset):
            for index in range(4):
                np.testing.assert_array_equal(sample_chunk(dataset, index), dataset[index])


def test_many_values_are_unshuffled_piece_by_piece() -> None:
    values = np.random.default_rng(2).integers(0, 1 << 32, 100_003, np.uint32)
    np.testing.assert_array_equal(unshuffled(np.ascontiguousarray(values.view(np.uint8).reshape(-1, 4).T)), values)


# ---- statistics


def test_moments_of_parts_are_those_of_the_whole() -> None:
    values = np.random.default_rng(1).normal(1e5, 700, (40, 3, 8)).astype(np.float32)
    whole = Moments.of(values, 1)
    parts = Moments.of(values[:7], 1).joined(Moments.of(values[7:], 1))
    assert parts.count == whole.count == 320
    np.testing.assert_allclose(parts.mean, values.astype(np.float64).mean(axis=(0, 2)), rtol=1e-12)
    np.testing.assert_allclose(parts.deviation, values.astype(np.float64).std(axis=(0, 2)), rtol=1e-9)
    np.testing.assert_allclose(whole.deviation, parts.deviation, rtol=1e-9)


def test_sizes_of_the_tests_are_those_of_their_grids() -> None:
    assert set(SIZES) == set(WRITTEN)
