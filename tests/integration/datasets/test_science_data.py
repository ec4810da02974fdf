"""`aiperf dataset` on scientific data: generated, described, checked, and cut from universes."""

import json
import os
import re
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from aiperf.config.dataset_manifest import MANIFEST_NAME
from aiperf.errors import DatasetError, UsageError
from tests.support.hand_made import aiperf
from tests.support.images import silent
from tests.support.trainings.science import COUNTS, make_science
from workloads.data.formats import FORMATS
from workloads.data.generators import GENERATORS
from workloads.data.manifest import Generated, read_science_manifest
from workloads.datasets.science.check import check
from workloads.datasets.science.cli import KINDS
from workloads.datasets.science.describe import describe
from workloads.datasets.science.pool import each
from workloads.datasets.science.ready import needs_of, recipe_of
from workloads.datasets.science.synthesize import ScienceRecipe, synthesize
from workloads.datasets.science.universes import cut
from workloads.science import SCIENCE


@pytest.fixture(scope="module")
def science(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("science")
    for name in COUNTS:
        make_science(folder / name, name)
    return folder


def copied(science: Path, name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(science / name, tmp_path / name))


def test_the_defaults_of_the_command_are_the_data_of_the_rehearsals() -> None:
    for need in needs_of(list(SCIENCE), "rehearsal"):
        recipe = recipe_of(need)
        assert KINDS[recipe.name][1:] == (recipe.images["train"], recipe.images["validation"], recipe.size)


def test_every_generator_has_a_command() -> None:
    assert set(KINDS) == set(GENERATORS)
    for name, (_, _, _, size) in KINDS.items():
        assert size == GENERATORS.load(name).size


def test_data_are_generated_and_checked_by_the_command(tmp_path: Path) -> None:
    words: list[str | int] = ["--images", 20, "--validation", 5, "--size", 16, "--seed", 3, "--workers", 1]
    done = aiperf("dataset", "synthesize", "hep", *words, tmp_path / "hep")
    assert done.returncode == 0, done.stderr
    assert "20 training and 5 validation samples of 16 x 16, hep-64, generated (hep, version 1, seed 3)" in done.stdout
    manifest = read_science_manifest(tmp_path / "hep")
    assert manifest.generated == Generated(name="hep", version=1, seed=3)
    assert manifest.fingerprint in done.stdout
    checked = aiperf("dataset", "check", tmp_path / "hep", "--workers", 1)
    assert (checked.returncode, checked.stdout) == (0, "20 training and 5 validation samples; 0 problem(s)\n")
    again = aiperf("dataset", "synthesize", "hep", *words, tmp_path / "hep")
    assert again.returncode == 2
    assert "is not empty; name a new folder" in again.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["hep"], "the following arguments are required: DIR"),
        (["ewa", "--size", "49", "x"], "--size 49: ewa has sizes from 48 to 1536, a multiple of 2"),
        (["cos", "--size", "4", "x"], "--size 4: cos has sizes from 8 to 256"),
        (["hep", "--images", "0", "x"], "'0' is not a whole number of at least 1"),
        (["hep", "--seed", "-1", "x"], "'-1' is not a whole number of at least 0"),
        (["hep", "--seed", str(1 << 63), "x"], "seeds are from 0 to"),
        (["hep", "--images", str(10**8), "x"], "at most 10,000,000 samples of a split can be made"),
        (["ewa", "--images", "40000", "x"], "40000 train images are too many: 22 years have 1460 each"),
        (["cos", "--clases", "3", "x"], "unrecognized arguments: --clases"),
    ],
)
def test_impossible_words_are_refused(tmp_path: Path, words: list[str], message: str) -> None:
    output = tmp_path / "out"
    done = aiperf("dataset", "synthesize", *[str(output) if word == "x" else word for word in words])
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not output.exists()


def test_two_runs_with_any_workers_make_the_same_bytes(science: Path, tmp_path: Path) -> None:
    recipe = ScienceRecipe("ewa", {"train": 35, "validation": 5}, 48, seed=5)
    synthesize(recipe, tmp_path / "ewa", silent, workers=2)
    for path in (science / "ewa").iterdir():
        assert (tmp_path / "ewa" / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize("name", COUNTS)
def test_honest_directories_have_no_problem(name: str, science: Path) -> None:
    result = check(science / name, silent, workers=0)
    assert (result.problems, result.notes) == ((), ())
    assert (result.images["train"], result.images["validation"]) == COUNTS[name]


def test_check_lists_every_problem(science: Path, tmp_path: Path) -> None:
    folder = copied(science, "ewa", tmp_path)
    document = json.loads((folder / MANIFEST_NAME).read_text())
    document["validation"]["files"][0]["images"] += 1
    (folder / MANIFEST_NAME).write_text(json.dumps(document))
    with h5py.File(folder / "climo_1979.h5", "r+") as file:
        file["images"][3, 0, 0, 0] = np.nan
        file["boxes"][5, 0] = (0, 0, 500, 500, 9)
    shutil.copy(folder / "climo_1979.h5", folder / "climo_1984.h5")
    done = aiperf("dataset", "check", folder, "--workers", 1)
    assert done.returncode == 1
    for problem in (
        "climo_1979.h5: images, index 3: is not finite",
        "climo_1979.h5: boxes, index 5: has a box outside of the image",
        "climo_1979.h5: boxes, index 5: has a box of an unknown class; known are 0 to 3",
        "climo_1979.h5: its checksum is not that of dataset.json",
        "train: the fingerprint of its samples is ",
        "climo_1982.h5: holds 5 samples, not 6",
        "note: climo_1984.h5: is part of no split",
    ):
        assert problem in done.stdout
    assert re.fullmatch(r"35 training and 5 validation samples; \d+ problem\(s\)", done.stdout.splitlines()[-1])


def test_statistics_of_other_samples_are_a_problem(science: Path, tmp_path: Path) -> None:
    folder = copied(science, "ewa", tmp_path)
    document = json.loads((folder / MANIFEST_NAME).read_text())
    mean = document["channels"][2]["mean"]
    document["channels"][2]["mean"] = mean + 500
    (folder / MANIFEST_NAME).write_text(json.dumps(document))
    assert check(folder, silent, workers=0).problems == (
        f"dataset.json: PSL has mean {mean + 500}, and the training files have {mean}",
    )


def test_missing_files_and_samples_of_both_splits_are_problems(science: Path, tmp_path: Path) -> None:
    folder = copied(science, "cos", tmp_path)
    manifest = read_science_manifest(folder)
    train, validation = manifest.train.files[0].name, manifest.validation.files[0].name
    with h5py.File(folder / train, "r") as file, h5py.File(folder / validation, "r+") as other:
        other["x"][1:3], other["y"][1:3] = file["x"][4:6], file["y"][4:6]
    problems = check(folder, silent, workers=0).problems
    assert f"2 validation samples are training samples: {validation}, index 1; {validation}, index 2" in problems
    (folder / train).unlink()
    assert f"{train}: No such file or directory" in check(folder, silent, workers=0).problems


def test_a_test_split_is_described_with_the_files_that_the_field_publishes(tmp_path: Path) -> None:
    folder = tmp_path / "hep"
    recipe = ScienceRecipe("hep", {"train": 20, "validation": 5, "test": 6}, 16, seed=3)
    made = synthesize(recipe, folder, silent, workers=0)
    assert made.test is not None
    assert [file.name for file in made.test.files] == ["test.h5"]
    done = aiperf("dataset", "check", folder, "--workers", 1)
    assert done.stdout == "20 training and 5 validation samples, and 6 test samples; 0 problem(s)\n"
    (folder / "test.h5").rename(tmp_path / "test.h5")
    without = describe(folder, silent, workers=0)
    assert (without.test, without.generated) == (None, made.generated), "the samples are no less generated"
    assert "test" not in json.loads((folder / MANIFEST_NAME).read_text()), "as earlier versions read it"
    assert without.fingerprint != made.fingerprint
    shutil.copy(folder / "val.h5", folder / "test.h5")
    assert "note: test.h5: is part of no split" in aiperf("dataset", "check", folder, "--workers", 1).stdout
    describe(folder, silent, workers=0)
    problems = check(folder, silent, workers=0).problems
    assert any(line.startswith("5 test samples are validation samples: test.h5, index 0") for line in problems), (
        problems
    )
    (tmp_path / "test.h5").replace(folder / "test.h5")
    assert describe(folder, silent, workers=0) == made


def test_what_was_not_generated_is_not_called_generated(science: Path, tmp_path: Path) -> None:
    folder = copied(science, "hep", tmp_path)
    text = (folder / MANIFEST_NAME).read_text()
    (folder / MANIFEST_NAME).write_text(text.replace('"seed": 5', '"seed": 6'))
    assert check(folder, silent, workers=0).problems == (
        "train.h5, index 0: is not sample 0 of generator hep with seed 6",
        "val.h5, index 0: is not sample 0 of generator hep with seed 6",
    )
    (folder / MANIFEST_NAME).write_text(text.replace('"name": "hep"', '"name": "pythia"'))
    assert check(folder, silent, workers=0).problems == ("dataset.json: generator 'pythia' is not known",)


def test_files_made_elsewhere_are_described(science: Path, tmp_path: Path) -> None:
    for name in ("hep", "ewa", "cos"):
        folder = copied(science, name, tmp_path)
        wanted = read_science_manifest(folder)
        (folder / MANIFEST_NAME).unlink()
        found = describe(folder, silent, workers=0)
        assert found.generated is None
        assert found.source == "files made elsewhere"
        assert (found.channels, found.train, found.validation) == (wanted.channels, wanted.train, wanted.validation)
    (tmp_path / "hep" / MANIFEST_NAME).unlink()
    done = aiperf("dataset", "check", tmp_path / "hep", "--write-manifest", "--workers", 1)
    assert done.returncode == 0, done.stderr
    assert "150 training and 37 validation samples of 16 x 16, hep-64, files made elsewhere" in done.stdout


def test_a_description_again_keeps_the_origin(science: Path, tmp_path: Path) -> None:
    folder = copied(science, "cos", tmp_path)
    wanted = read_science_manifest(folder)
    assert describe(folder, silent, workers=0) == wanted
    assert wanted.generated is not None


def test_damaged_files_are_not_described(science: Path, tmp_path: Path) -> None:
    folder = copied(science, "ewa", tmp_path)
    with h5py.File(folder / "climo_1982.h5", "r+") as file:
        file["images"][0, 0, 0, 0] = np.inf
    with pytest.raises(DatasetError, match=r"climo_1982\.h5: images, index 0: is not finite"):
        describe(folder, silent, workers=0)
    (folder / "climo_1979.h5").write_bytes(b"")
    with pytest.raises(
        DatasetError, match=r"names of the format ewa, but climo_1979\.h5 is empty, and an HDF5 file is wanted"
    ):
        describe(folder, silent, workers=0)


def make_universe(path: Path, side: int, seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int16]]:
    counts = np.random.default_rng(seed).poisson(2.0, (side, side, side, 4)).astype(np.int16)
    with h5py.File(path, "w") as file:
        file["full"], file["unitPar"] = counts, np.full(4, seed / 10)
    return counts


def test_universes_are_cut_into_cubes(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    universes = [make_universe(tmp_path / "in" / f"{number}.hdf5", 16, number) for number in range(3)]
    (tmp_path / "in/notes.txt").write_text("x")
    with h5py.File(tmp_path / "in/other.hdf5", "w") as file:
        file["halos"] = [1]
    done = aiperf("dataset", "prepare", tmp_path / "in", tmp_path / "out", "--workers", 1)
    assert done.returncode == 0, done.stderr
    left_out = "1 left out (no universe: it lacks full): other.hdf5"
    assert f"note: {left_out}\n" in done.stderr
    assert "preparation.json: " + left_out in check(tmp_path / "out", silent, workers=0).notes
    manifest = read_science_manifest(tmp_path / "out")
    assert (manifest.train.images, manifest.validation.images, manifest.grid) == (128, 64, (4, 4, 4))
    opened = FORMATS.load("cosmoflow").open(tmp_path / "out" / manifest.validation.files[0].name)
    cubes, parameters = opened.read(0, 64)
    np.testing.assert_allclose(parameters, 0.2)
    np.testing.assert_array_equal(cubes[0], universes[2][:4, :4, :4])
    np.testing.assert_array_equal(cubes[4 * 4 * 1 + 4 * 2 + 3], universes[2][4:8, 8:12, 12:16])
    opened.close()
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.hdf5")}
    cut(tmp_path / "in", tmp_path / "out", silent, workers=0)
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.hdf5")} == before
    assert check(tmp_path / "out", silent, workers=0).problems == ()


def test_universes_that_cannot_be_cut_are_all_named(tmp_path: Path) -> None:
    make_universe(tmp_path / "a.hdf5", 6, 1)
    with pytest.raises(DatasetError, match="two universes are needed"):
        cut(tmp_path, tmp_path / "out", silent, workers=0)
    make_universe(tmp_path / "b.hdf5", 8, 1)
    with h5py.File(tmp_path / "b.hdf5", "r+") as file:
        del file["unitPar"]
    with pytest.raises(DatasetError) as raised:
        cut(tmp_path, tmp_path / "out", silent, workers=0)
    assert [line.partition(".hdf5: ")[2] for line in raised.value.lines] == [
        "full has sides of 6, which cannot be cut into 4",
        "is missing",
    ]


def test_files_that_need_no_preparation_say_so(science: Path, tmp_path: Path) -> None:
    done = aiperf("dataset", "prepare", science / "ewa", tmp_path / "out")
    assert done.returncode == 2
    assert "its files are trained as they are; describe them with: aiperf dataset check" in done.stderr


def die(number: int) -> int:
    if number == 1:
        os._exit(9)
    return number


def test_a_file_that_kills_its_process_costs_itself_alone() -> None:
    assert each(die, [2, 1], 2, silent, lambda number: -number) == [2, -1]


def test_gratings_are_still_drawn_into_a_folder_of_any_other_name(tmp_path: Path) -> None:
    done = aiperf("dataset", "synthesize", tmp_path / "hep", "--train", 20, "--classes", 1)
    assert done.returncode == 2
    assert "at least 2 classes are needed" in done.stderr


def test_a_full_disk_is_said_in_one_line(science: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("h5py.File", refuse)
    recipe = ScienceRecipe("hep", {"train": 3, "validation": 1}, 16, seed=5)
    with pytest.raises(DatasetError, match=r"train\.h5: cannot be written: No space left on device"):
        synthesize(recipe, tmp_path / "x", silent, workers=0)
    with pytest.raises(UsageError):
        synthesize(ScienceRecipe("hep", {"train": 3, "validation": 1}, 1, seed=5), tmp_path / "y", silent, workers=0)
