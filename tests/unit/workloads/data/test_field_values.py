"""Scientific data as people bring it: values that stand for missing ones, and wrong files."""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from workloads.data.arrays import Spreads
from workloads.data.examine import examine_file
from workloads.data.formats import FORMATS, FileLayout
from workloads.data.formats.fields import FILL_VALUES, Field, value_problems
from workloads.datasets.science.describe import recognised, refusals


def hep(path: Path, change: Callable[[h5py.File], None] = lambda file: None) -> Path:
    rng = np.random.default_rng(1)
    rows = rng.random((8, 8, 8, 3), np.float32), np.ones((8, 2), np.float32)
    FORMATS.load("hep-64").write(path, FileLayout(8, (8, 8)), [rows])
    with h5py.File(path, "r+") as file:
        change(file)
    return path


@pytest.mark.parametrize("value", [1e20, 9.969209968386869e36, 5e9, 1e30, 1e34, 3.4028234663852886e38])
def test_values_that_stand_for_missing_ones_are_named(tmp_path: Path, value: float) -> None:
    def spoil(file: h5py.File) -> None:
        file["all_events/hist"][3, 2, 1] = value

    (problem,) = examine_file(tmp_path, hep(tmp_path / "train.h5", spoil).name, "hep-64").problems
    assert "index 3: has the " in problem
    assert ("fill value" in problem) == (value != 5e9)


@pytest.mark.parametrize("value", [-9999.0, 1e20, float(np.float32(1e20)), -9.99e8, 1.7976931348623157e308])
def test_values_for_missing_ones_are_known_in_64_bits_as_32_round_them(value: float) -> None:
    values = np.full((2, 3), 280.0)
    values[1, 2] = value
    (found,) = value_problems(Field("images", ("N", 3)), values, {}, 0)
    assert found == (1, f"has the fill value {value:g}, which stands for a missing one")


def test_far_values_are_notes_and_usual_ones_are_nothing(tmp_path: Path) -> None:
    def odd(file: h5py.File) -> None:
        file["all_events/hist"][3, 2, 1] = 200.0

    found = examine_file(tmp_path, hep(tmp_path / "train.h5", odd).name, "hep-64")
    assert found.problems == ()
    assert "index 3: has the value 200, " in found.notes[0]
    found = examine_file(tmp_path, hep(tmp_path / "val.h5").name, "hep-64")
    assert (found.problems, found.notes) == ((), ())
    assert len(set(FILL_VALUES)) == len(FILL_VALUES)
    constant = Spreads.of(np.zeros((4, 3, 2), np.float32), -1)
    assert not constant.farthest().any()


def test_labels_may_be_truth_values(tmp_path: Path) -> None:
    def truth(file: h5py.File) -> None:
        for name in ("passSR", "y"):
            del file[f"all_events/{name}"]
            file[f"all_events/{name}"] = np.array([True, False] * 4)

    hep(tmp_path / "train.h5", truth)
    opened = FORMATS.load("hep-64").open(tmp_path / "train.h5")
    assert opened.read(0, 8)[1].tolist() == [[1.0, 1.0], [0.0, 0.0]] * 4
    opened.close()


def test_files_with_the_names_of_a_format_are_refused_with_its_reasons(tmp_path: Path) -> None:
    def lacking(file: h5py.File) -> None:
        del file["all_events/histEM"]

    hep(tmp_path / "train.h5", lacking)
    hep(tmp_path / "val.h5")
    assert recognised(tmp_path) is None
    (line,) = refusals(tmp_path)
    assert line.endswith("names of the format hep-64, but train.h5: all_events/histEM is missing")
    (tmp_path / "train.h5").write_bytes(b"<html>")
    assert refusals(tmp_path)[0].endswith("train.h5 is a page of HTML, and an HDF5 file is wanted")
    hep(tmp_path / "train.h5")
    (tmp_path / "val.h5").unlink()
    assert refusals(tmp_path)[0].endswith("has no validation files of the format hep-64")
    assert refusals(tmp_path / "none") == ()
