"""Batches of scientific data: what is made of a sample, by seed, epoch and example alone."""

import shutil
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import h5py
import numpy as np
import pytest

from aiperf.config.dataset_manifest import SPLITS
from aiperf.errors import DatasetError, TrialFailedError
from replica.trainer.data.contract import RankShare
from replica.trainer.data.science.source import ScienceSource, Turn, epoch_order
from tests.support.trainings.science import COUNTS, make_science, opened, raw, together, validation
from workloads.data import find_set
from workloads.data.generators import weather
from workloads.data.manifest import read_science_manifest
from workloads.datasets.science.synthesize import ScienceRecipe, synthesize


@pytest.fixture(scope="module")
def science(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("science")
    for name in COUNTS:
        make_science(folder / name, name)
    return folder


@pytest.mark.parametrize("name", ["hep", "ewa", "ewa-semi", "cos", "cos-fields", "cos-slices"])
def test_a_set_has_the_shapes_of_its_batches(name: str, science: Path) -> None:
    folder = science / name.replace("slices", "fields").removesuffix("-semi")
    found = find_set(name, folder)
    assert found.generated
    assert found.fingerprint == read_science_manifest(folder).fingerprint
    inputs, targets = validation(name, folder)
    assert inputs.shape == (found.validation_images, *found.input_shape)
    assert targets.shape == (found.validation_images, *found.target_shape)
    assert inputs.dtype == targets.dtype == np.float32
    assert np.isfinite(inputs).all()


def test_collisions_are_logarithms_and_labels_with_the_selection(science: Path) -> None:
    inputs, targets = validation("hep", science / "hep")
    images, labels = raw(science / "hep", "validation")
    exact = images.astype(np.float64)
    wanted = np.stack([np.log(1 + exact[..., 0]), np.log(1 + 5 * exact[..., 1]), np.log(1 + exact[..., 2])], -1) / 2
    np.testing.assert_allclose(inputs, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(targets[:, 1], labels[:, 0])
    np.testing.assert_array_equal(targets[:, 0], 1 - labels[:, 0])
    np.testing.assert_array_equal(targets[:, 2], labels[:, 1])
    assert 0 < labels[:, 1].mean() < 1


def test_cubes_are_standardised_logarithms(science: Path) -> None:
    inputs, targets = validation("cos", science / "cos")
    cubes, parameters = raw(science / "cos", "validation")
    trained = np.log1p(raw(science / "cos", "train")[0].astype(np.float64))
    mean, std = (getattr(trained, name)(axis=(0, 1, 2, 3)) for name in ("mean", "std"))
    np.testing.assert_allclose(inputs, (np.log1p(cubes.astype(np.float64)) - mean) / std, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(targets, parameters)


def test_the_test_split_is_read_once_by_all_ranks_together(tmp_path: Path) -> None:
    recipe = ScienceRecipe("hep", {"train": 9, "validation": 4, "test": 7}, 16, 1)
    manifest = synthesize(recipe, tmp_path, lambda *_: None, 0)
    source = opened("hep", tmp_path)
    assert isinstance(source, ScienceSource)
    assert (source.dataset.test_images, manifest.splits) == (7, ("train", "validation", "test"))
    whole = together(source.test_batches(4, RankShare()))
    halves = [together(source.test_batches(4, RankShare(rank, 2))) for rank in range(2)]
    for place in range(2):
        np.testing.assert_array_equal(np.concatenate([half[place] for half in halves]), whole[place])
    others = np.concatenate([validation("hep", tmp_path)[0], together(source.train_batches(4, 1, 1, RankShare()))[0]])
    assert not any((image == other).all() for image in whole[0] for other in others)


def test_cubes_are_turned_round_in_training(science: Path) -> None:
    source = opened("cos", science / "cos")
    cubes, parameters = raw(science / "cos", "train")
    manifest = read_science_manifest(science / "cos")
    mean, std = (
        np.array([getattr(channel, f"log_{name}") for channel in manifest.channels]) for name in ("mean", "std")
    )
    standard = (np.log1p(cubes.astype(np.float64)) - mean) / std
    seen = set()
    for epoch in range(4):
        for inputs, targets in source.train_batches(4, 1, epoch, RankShare()):
            for cube, target in zip(inputs, targets, strict=True):
                (number,) = np.flatnonzero((parameters == target).all(axis=1))
                turns = [
                    axes
                    for count in range(4)
                    for axes in combinations(range(3), count)
                    if np.allclose(np.flip(standard[number], axes), cube, atol=1e-4)
                ]
                assert len(turns) == 1
                seen.add(turns[0])
    assert len(seen) == 8, "every combination of axes comes up"


def test_weather_is_standardised_with_channels_last(science: Path) -> None:
    inputs, targets = validation("ewa", science / "ewa")
    images, boxes = raw(science / "ewa", "validation")
    trained = raw(science / "ewa", "train")[0].astype(np.float64)
    mean, std = (getattr(trained, name)(axis=(0, 2, 3)) for name in ("mean", "std"))
    np.testing.assert_allclose(inputs, (np.moveaxis(images.astype(np.float64), 1, -1) - mean) / std, atol=1e-3)
    np.testing.assert_array_equal(targets[:, :15], boxes)
    drawn = targets[:, 15, 0]
    assert ((drawn >= 0) & (drawn < 1)).all()
    assert len(set(drawn)) == len(drawn)
    np.testing.assert_array_equal(targets[:, 15, 1:], -1)


def test_weather_is_mirrored_with_its_boxes_and_eastward_winds(science: Path) -> None:
    source = opened("ewa", science / "ewa")
    images, boxes = raw(science / "ewa", "train")
    manifest = read_science_manifest(science / "ewa")
    mean, std = (np.array([getattr(channel, name) for channel in manifest.channels]) for name in ("mean", "std"))
    signs = np.array([-1 if name in ("U850", "UBOT") else 1 for name in weather.CHANNELS])
    columns, mirrored = images.shape[-1], 0
    plain = (np.moveaxis(images.astype(np.float64), 1, -1) - mean) / std
    mirror = (np.moveaxis(images[..., ::-1].astype(np.float64), 1, -1) * signs - mean) / std
    for inputs, targets in source.train_batches(4, 2, 1, RankShare()):
        for image, own in zip(inputs, targets, strict=True):
            number = int(np.abs(plain[..., 6] - image[..., 6]).mean(axis=(1, 2)).argmin())
            turned = int(np.abs(mirror[..., 6] - image[..., 6]).mean(axis=(1, 2)).argmin())
            if np.allclose(plain[number], image, atol=1e-3):
                np.testing.assert_array_equal(own[:15], boxes[number])
                continue
            mirrored += 1
            np.testing.assert_allclose(mirror[turned], image, atol=1e-3)
            used = boxes[turned][:, 4] >= 0
            np.testing.assert_array_equal(own[:15][~used], -1)
            wanted = boxes[turned][used]
            np.testing.assert_array_equal(own[:15][used][:, [0, 2, 4]], wanted[:, [0, 2, 4]])
            np.testing.assert_array_equal(own[:15][used][:, 1], columns - wanted[:, 3])
            np.testing.assert_array_equal(own[:15][used][:, 3], columns - wanted[:, 1])
    assert 5 < mirrored < 30, "of 35"


def test_fields_are_the_octants_of_cubes(science: Path) -> None:
    inputs, _ = validation("cos-fields", science / "cos-fields")
    cubes, _ = raw(science / "cos-fields", "validation")
    mean = raw(science / "cos-fields", "train")[0][..., 0].astype(np.float64).mean()
    density = cubes[..., 0] / mean
    scaled = 2 * density / (density + 4) - 1
    whole = np.empty(scaled.shape)
    for number, field in enumerate(inputs):
        x, y, z = (slice(4 * (number >> axis & 1), 4 * (number >> axis & 1) + 4) for axis in range(3))
        whole[number // 8, x, y, z] = field[..., 0]
    np.testing.assert_allclose(whole, scaled, atol=1e-5)


def test_slices_are_planes_of_cubes(science: Path) -> None:
    inputs, _ = validation("cos-slices", science / "cos-fields")
    cubes, _ = raw(science / "cos-fields", "validation")
    mean = raw(science / "cos-fields", "train")[0][..., 0].astype(np.float64).mean()
    density = cubes[..., 0] / mean
    np.testing.assert_allclose(inputs[..., 0], (2 * density / (density + 4) - 1).reshape(-1, 8, 8), atol=1e-5)


def test_noise_of_fields_is_by_example_and_flips_by_batch(science: Path) -> None:
    source = opened("cos-fields", science / "cos-fields")
    fixed = validation("cos-fields", science / "cos-fields")[1]
    np.testing.assert_array_equal(fixed, together(source.validation_batches(7, RankShare()))[1])
    assert not fixed[:, 64].any()
    other = together(opened("cos-fields", science / "cos-fields", seed=9).validation_batches(4, RankShare()))[1]
    assert not np.array_equal(fixed, other)
    noise, flags = [], []
    for epoch in range(60):
        for _, targets in source.train_batches(4, 1, epoch, RankShare()):
            assert len(set(targets[:, 64])) == 1
            flags.append(targets[0, 64])
            noise.append(targets[:, :64])
    everything = np.concatenate(noise)
    assert len(np.unique(everything[:, 0])) == len(everything)
    assert everything.mean() == pytest.approx(0, abs=0.02)
    assert everything.std() == pytest.approx(1, abs=0.02)
    assert set(flags) == {0.0, 1.0}
    assert np.mean(flags) == pytest.approx(0.01, abs=0.012)


@pytest.mark.parametrize("name", ["hep", "ewa", "ewa-semi", "cos", "cos-fields"])
def test_an_example_is_the_same_on_any_rank_in_any_batch(name: str, science: Path) -> None:
    folder = science / name.removesuffix("-semi")
    alone = opened(name, folder, parallel_decode=1)
    inputs, targets = together(alone.train_batches(3, 4, 2, RankShare()))
    shared = [opened(name, folder, parallel_decode=4) for _ in range(3)]
    parts = [together(source.train_batches(5, 4, 2, RankShare(rank, 3))) for rank, source in enumerate(shared)]
    np.testing.assert_array_equal(inputs, np.concatenate([part[0] for part in parts]))
    columns = slice(None, 64) if name == "cos-fields" else slice(None)
    np.testing.assert_array_equal(targets[:, columns], np.concatenate([part[1] for part in parts])[:, columns])


@pytest.mark.parametrize("name", COUNTS)
def test_the_sample_of_training_examples_is_spread_over_the_files_and_not_augmented(name: str, science: Path) -> None:
    source = opened(name, science / name)
    assert isinstance(source, ScienceSource)
    found = together(source.sampled_batches(4, RankShare()))
    trained, sampled = source.dataset.train_images, source.dataset.validation_images
    assert len(found[0]) == source.sampled_images == sampled
    parts = [together(source.sampled_batches(3, RankShare(rank, 2))) for rank in (0, 1)]
    for whole, part in zip(found, zip(*parts, strict=True), strict=True):
        np.testing.assert_array_equal(whole, np.concatenate(part), "the same on any ranks")
    everything = [
        source._batch("train", np.array([number]), Turn((2, source._seed, 0), 0, None))
        for number in (0, trained // sampled, (sampled - 1) * trained // sampled)
    ]
    for place, (inputs, targets) in zip((0, 1, -1), everything, strict=True):
        np.testing.assert_array_equal(found[0][place], inputs[0])
        np.testing.assert_array_equal(found[1][place], targets[0])


def test_blocks_stay_together_in_a_random_order() -> None:
    order = epoch_order([10, 7], block=4, mixed=2, seed=1, epoch=1)
    assert sorted(order) == list(range(17))
    blocks = [set(range(*ends)) for ends in ((0, 4), (4, 8), (8, 10), (10, 14), (14, 17))]
    # The first five examples are of the first two blocks: no two of these have fewer.
    assert sum(bool(set(order[:5].tolist()) & block) for block in blocks) <= 2
    assert not np.array_equal(order, epoch_order([10, 7], 4, 2, seed=1, epoch=2))
    assert not np.array_equal(order, epoch_order([10, 7], 4, 2, seed=2, epoch=1))
    assert sorted(epoch_order([10, 7], 1, 1, 1, 1)) == list(range(17))


def test_sources_load_no_framework(science: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.support.trainings.requests import request_for; "
        "from replica.trainer.data import open_source; from workloads.data import find_set; "
        "from replica.trainer.data.contract import RankShare; folder = Path(sys.argv[1]); "
        "source = open_source(request_for('cos', folder), find_set('cos', folder)); "
        "list(source.train_batches(4, 1, 1, RankShare())); "
        "print(sorted({'tensorflow', 'keras', 'jax', 'torch'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program, str(science / "cos")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_damage_that_comes_up_in_training_ends_the_trial(science: Path, tmp_path: Path) -> None:
    folder = tmp_path / "ewa"
    shutil.copytree(science / "ewa", folder)
    name = read_science_manifest(folder).train.files[0].name
    with h5py.File(folder / name, "r") as file:
        place = file["images"].id.get_chunk_info(1)
    data = bytearray((folder / name).read_bytes())
    data[place.byte_offset : place.byte_offset + place.size] = bytes(place.size)
    (folder / name).write_bytes(data)
    source = opened("ewa", folder)
    with pytest.raises(TrialFailedError, match=rf"data: .*{name}: images, index 1: .*aiperf dataset check"):
        list(source.train_batches(4, 1, 1, RankShare()))


def test_all_that_is_wrong_is_said_before_the_start(science: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cos"
    shutil.copytree(science / "cos", folder)
    train, validation = (read_science_manifest(folder).split(split).files[0] for split in SPLITS)
    (folder / train.name).write_bytes(bytes(train.size_bytes))
    (folder / validation.name).write_bytes(bytes(validation.size_bytes))
    with pytest.raises(DatasetError) as raised:
        opened("cos", folder)
    assert [line.split(": ")[1] for line in raised.value.lines] == ["cannot be opened as HDF5"] * 2
    (folder / train.name).unlink()
    (folder / validation.name).write_bytes(b"")
    with pytest.raises(DatasetError) as raised:
        find_set("cos", folder)
    assert [line.partition(f"{folder}: ")[2] for line in raised.value.lines] == [
        f"{train.name}: No such file or directory",
        f"{validation.name}: has 0 bytes, not {validation.size_bytes:,}",
    ]


def test_a_set_of_another_kind_is_refused(science: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="holds cos, as its format cosmoflow says, and not hep"):
        find_set("hep", science / "cos")
    with pytest.raises(DatasetError, match="unknown scientific data 'mars'; known: hep, ewa, cos"):
        find_set("mars", science / "cos")
    with pytest.raises(DatasetError, match=r"dataset\.json: No such file.*aiperf dataset synthesize hep\|ewa"):
        find_set("hep", tmp_path)
    with pytest.raises(DatasetError, match="data set 'hep' needs a directory"):
        find_set("hep", None)
