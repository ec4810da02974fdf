"""One suite for every registered input pipeline: each image once over all ranks."""

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from aiperf.clock import SystemClock
from aiperf.config.dataset_manifest import FileEntry, read_dataset_manifest
from aiperf.config.datasets import REGISTERED, find_dataset
from aiperf.config.fingerprints import entries_name
from aiperf.errors import DatasetError, TrialFailedError
from aiperf.storage.patience import PATIENCE
from replica.trainer.data import SOURCES, open_source
from replica.trainer.data.contract import Batches, DataSource, RankShare
from replica.trainer.data.images import train_image, validation_image
from replica.trainer.data.portable.crops import cropped
from replica.trainer.data.portable.recipe import DEVIATION, MEAN, scale_and_shift
from replica.trainer.data.sample import fingerprint_of
from replica.trainer.training import Epochs
from tests.support.hand_made import ManualClock, aiperf
from tests.support.images import CLASSES, SIDE, TRAIN, VALIDATION, make_folders, make_shards, silent, source_for
from tests.support.trainings.requests import request_for
from tests.support.trainings.science import make_science
from workloads.data import find_set
from workloads.data.records import pieces
from workloads.datasets.check import describe
from workloads.datasets.shards import Image, read_shard, write_shard

SCIENCE = {
    "hep": "hep",
    "ewa": "ewa",
    "ewa-semi": "ewa",
    "cos": "cos",
    "cos-fields": "cos-fields",
    "cos-slices": "cos",
}
"""Sources of scientific data, and the generated set that each reads here."""

SHUFFLED = [name for name in SOURCES if name != "synthetic"]
"""Sources whose images differ: all but those of one repeated batch."""


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards") / "data"
    make_shards(folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folders")
    make_folders(folder)
    describe(folder, SIDE, silent, workers=1)
    return folder


@pytest.fixture(scope="module")
def science(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("science")
    for name in set(SCIENCE.values()):
        make_science(folder / name, name)
    return folder


def open_by(name: str, shards: Path, folders: Path, science: Path) -> DataSource:
    """The source of that name, opened as in a training. Raises KeyError if the suite lacks it."""
    if name in SCIENCE:
        folder = science / SCIENCE[name]
        return open_source(request_for(name, folder), find_set(name, folder))
    settings: dict[str, dict[str, Any]] = {
        "digits": {"dataset": "digits"},
        "synthetic": {"dataset": "digits", "synthetic_input": True},
        "tfrecord": {"dataset": "images", "data_dir": shards},
        "folder": {"dataset": "images", "data_dir": folders},
        "portable-tfrecord": {"dataset": "images", "data_dir": shards, "pipeline": "numpy"},
        "portable-folder": {"dataset": "images", "data_dir": folders, "pipeline": "numpy"},
    }
    source = source_for(**settings[name])
    assert isinstance(source, SOURCES.load(name))
    return source


def normalised(images: Any) -> Any:
    """Images of either type as the network takes them."""
    found = np.asarray(images)
    if found.dtype == np.float32:
        return found
    scale, shift = scale_and_shift(found.shape[2])
    return (found.reshape(*found.shape[:2], -1).astype(np.float32) * scale - shift).reshape(found.shape)


def counted(
    batches: Iterable[tuple[Any, Any]], source: DataSource, one_hot: bool = True
) -> tuple[list[int], set[bytes]]:
    sizes, images = [], set()
    for pixels, labels in batches:
        # NumPy arrays or tensors of the framework: both become arrays without a copy.
        found, classes = np.asarray(pixels), np.asarray(labels)
        assert found.dtype == source.input_type
        assert classes.dtype == np.float32
        assert found.shape[0] == classes.shape[0]
        assert not one_hot or classes.sum() == classes.shape[0]
        sizes.append(found.shape[0])
        images |= {image.tobytes() for image in found}
    return sizes, images


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("name", list(SOURCES))
def test_every_image_once_over_all_ranks_in_as_many_steps(
    name: str, ranks: int, shards: Path, folders: Path, science: Path
) -> None:
    source = open_by(name, shards, folders, science)
    facts, batch = source.dataset, 8
    for images, validation in ((facts.train_images, False), (facts.validation_images, True)):
        total, seen = 0, set[bytes]()
        for rank in range(ranks):
            share = RankShare(rank, ranks)
            batches = (
                source.validation_batches(batch, share) if validation else source.train_batches(batch, 1, 1, share)
            )
            sizes, own = counted(batches, source, name not in SCIENCE)
            assert len(sizes) <= ceil(images / (batch * ranks))
            assert all(size == batch for size in sizes[:-2])
            total += sum(sizes)
            seen |= own
        assert total == images
        if name != "synthetic":
            # Distinct images may be equal to the last pixel; a dropped batch would be far more.
            assert images - 5 < len(seen) <= images


@pytest.mark.parametrize("name", list(SOURCES))
def test_known_images_are_those_of_training_as_in_validation(
    name: str, shards: Path, folders: Path, science: Path
) -> None:
    source = open_by(name, shards, folders, science)
    found = [
        counted(source.known_batches(8, seed, RankShare(rank, 2)), source, name not in SCIENCE)
        for seed in (1, 2)
        for rank in (0, 1)
    ]
    images = [one | two for (_, one), (_, two) in (found[:2], found[2:])]
    for sizes in found[:2], found[2:]:
        assert sum(sum(own) for own, _ in sizes) == source.dataset.train_images
    # Nothing in them is drawn at random: whatever the order, they are the same images.
    assert name in SCIENCE or images[0] == images[1]
    if name != "synthetic":
        assert not images[0] & counted(source.validation_batches(8, RankShare()), source, False)[1]


@pytest.mark.parametrize("name", SHUFFLED)
def test_the_order_of_training_depends_on_seed_and_epoch(name: str, shards: Path, folders: Path, science: Path) -> None:
    def first(seed: int, epoch: int) -> bytes:
        source = open_by(name, shards, folders, science)
        return np.asarray(next(iter(source.train_batches(8, seed, epoch, RankShare())))[0]).tobytes()

    assert first(1, 1) == first(1, 1)
    assert len({first(1, 1), first(1, 2), first(2, 1)}) == 3


@pytest.mark.parametrize("name", ["tfrecord", "folder", "portable-tfrecord", "portable-folder"])
def test_sources_of_files_have_the_images_of_their_description(name: str, shards: Path, folders: Path) -> None:
    source = open_by(name, shards, folders, folders)
    facts = source.dataset
    assert (facts.train_images, facts.validation_images, facts.classes) == (TRAIN, VALIDATION, CLASSES)
    pixels, labels = zip(*source.validation_batches(8, RankShare()), strict=True)
    everything = normalised(np.concatenate(pixels))
    assert everything.shape == (VALIDATION, SIDE, SIDE, 3)
    # Normalised: not 0 to 255, not 0 to 1.
    assert everything.min() < -0.5
    assert 0.5 < everything.max() < 4
    counts = np.concatenate(labels).sum(axis=0)
    assert sorted(counts) == [4, 4, 5], "13 images of 3 classes"


def test_a_validation_image_is_resized_and_its_centre_taken() -> None:
    # A white disc in the middle of a wide black image: the crop is central and keeps the shape.
    y, x = np.mgrid[0:128, 0:256]
    disc = np.where((y - 64) ** 2 + (x - 128) ** 2 < 40**2, 255, 0).astype(np.uint8)
    encoded = tf.io.encode_jpeg(np.repeat(disc[..., None], 3, axis=2), quality=100)
    image = validation_image(encoded, 56).numpy()[..., 0]
    assert image.shape == (56, 56)
    # 128 -> 64 by the short side, of which 56: half size, so a radius of 20 around the centre.
    yy, xx = np.mgrid[0:56, 0:56]
    radius = np.hypot(yy - 27.5, xx - 27.5)
    assert image[radius < 18].min() > 200
    assert image[radius > 22].max() < 50


def test_a_training_crop_is_within_its_bounds_and_of_the_asked_size() -> None:
    # Colour encodes the place, so that a crop shows its own position and size.
    y, x = np.mgrid[0:200, 0:300]
    ramp = np.stack([x * 255 // 299, y * 255 // 199, np.zeros_like(x)], axis=2).astype(np.uint8)
    encoded = tf.io.encode_jpeg(ramp, quality=100)
    areas, aspects, mirrored = [], [], 0
    for seed in range(120):
        image = train_image(encoded, 64, tf.constant([seed, 1], tf.int64)).numpy()
        assert image.shape == (64, 64, 3)
        left, right = image[:, 0, 0].mean(), image[:, -1, 0].mean()
        mirrored += left > right
        width, height = abs(right - left) / 255 * 300, (image[-1, :, 1].mean() - image[0, :, 1].mean()) / 255 * 200
        areas.append(width * height / (200 * 300))
        aspects.append(width / height)
    assert 0.05 < min(areas) < 0.2
    assert 0.8 < max(areas) < 1.02
    assert min(aspects) > 0.65
    assert max(aspects) < 1.55
    assert 35 < mirrored < 85


@pytest.mark.parametrize("kind", ["tfrecord", "folder"])
def test_validation_images_without_tensorflow_are_those_of_tensorflow(kind: str, shards: Path, folders: Path) -> None:
    found, wanted = (
        [
            tuple(map(np.asarray, batch))
            for batch in open_by(name, shards, folders, folders).validation_batches(8, RankShare())
        ]
        for name in (f"portable-{kind}", kind)
    )
    for (pixels, labels), (other_pixels, other_labels) in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(labels, other_labels)
        levels = np.abs(normalised(pixels) - other_pixels) * DEVIATION
        assert levels.max() < 4, "of 255: decoders round differently"
        assert levels.mean() < 0.5


def test_any_crop_without_tensorflow_is_that_of_tensorflow() -> None:
    pixels = np.random.default_rng(3).integers(0, 256, size=(61, 47, 3), dtype=np.uint8)
    for box in ((0, 0, 61, 47), (3, 5, 20, 30), (60, 46, 1, 1), (10, 0, 50, 7)):
        top, left, height, width = box
        part = pixels[top : top + height, left : left + width]
        found, wanted = cropped(pixels, box, 32).astype(np.float32), tf.image.resize(part, (32, 32))
        np.testing.assert_allclose(found, wanted, atol=0.8, err_msg="bytes, from weights of 11 bits")
        assert abs((found - wanted).numpy().mean()) < 0.2


def test_a_batch_of_bytes_is_normalised_by_channel() -> None:
    pixels = np.random.default_rng(4).integers(0, 256, size=(3, 5, 7, 3), dtype=np.uint8)
    found = normalised(pixels)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, (pixels - np.array(MEAN)) / DEVIATION, atol=1e-5)


def test_normalisation_uses_the_mean_of_imagenet() -> None:
    assert pytest.approx([0.485, 0.456, 0.406]) == [value / 255 for value in MEAN]


def test_shares_of_files_cover_them_and_name_each_image_once() -> None:
    files = [FileEntry(name=str(n), images=n, size_bytes=0, sha256="") for n in (5, 0, 3, 7)]
    found = [
        (p.file, i)
        for rank in range(4)
        for p in pieces(files, RankShare(rank, 4).of(15))
        for i in range(p.skip, p.skip + p.take)
    ]
    assert found == [(file.name, i) for file in files for i in range(file.images)]


def test_a_damaged_shard_ends_the_trial_and_says_where_to_look(tmp_path: Path) -> None:
    make_shards(tmp_path / "data")
    victim = tmp_path / "data" / "train-00002-of-00004"
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 0xFF
    victim.write_bytes(data)
    source = source_for("images", tmp_path / "data")
    with pytest.raises(TrialFailedError, match=r"data: .*corrupted record.*aiperf dataset check"):
        list(source.train_batches(8, 1, 1, RankShare()))
    victim.unlink()
    with pytest.raises(DatasetError, match=r"1 shard\(s\) are missing, such as train-00002-of-00004"):
        source_for("images", tmp_path / "data")


def test_storage_that_refuses_the_images_ends_the_trial_by_another_kind_than_data(tmp_path: Path) -> None:
    make_shards(tmp_path / "data")
    source = source_for("images", tmp_path / "data")
    victim = tmp_path / "data" / "train-00002-of-00004"
    victim.unlink()
    # The kernel answers every reading at its beginning with EIO.
    victim.symlink_to("/proc/self/mem")
    with pytest.raises(TrialFailedError, match=r"storage: .*Input/output error"):
        list(source.train_batches(8, 1, 1, RankShare()))


@pytest.mark.parametrize("name", ["portable-tfrecord", "portable-folder"])
def test_images_that_cannot_be_read_for_a_moment_are_waited_for(
    name: str, shards: Path, folders: Path, science: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_by(name, shards, folders, science)
    wanted = counted(source.validation_batches(8, RankShare()), source)
    refusals = iter([errno.EIO, errno.ESTALE, 0, errno.ESTALE])

    def refuse(real: Callable[..., Any]) -> Callable[..., Any]:
        def refused(*words: Any, **more: Any) -> Any:
            if code := next(refusals, 0):
                raise OSError(code, os.strerror(code))
            return real(*words, **more)

        return refused

    monkeypatch.setattr(os, "pread", refuse(os.pread))
    monkeypatch.setattr(Path, "read_bytes", refuse(Path.read_bytes))
    with PATIENCE.set(60):
        assert counted(source.validation_batches(8, RankShare()), source) == wanted
    assert next(refusals, None) is None
    refusals = iter([errno.ESTALE])
    with pytest.raises(TrialFailedError, match=r"storage: .*[Ss]tale"):
        list(source.validation_batches(8, RankShare()))


def sampled(folder: Path | None, dataset: str = "images", **changes: Any) -> str | None:
    request = request_for(dataset, folder, **changes)
    return fingerprint_of(request, find_dataset(request.dataset, request.data_dir))


def test_a_sample_of_the_data_set_gives_its_fingerprint(shards: Path, folders: Path) -> None:
    for folder in (shards, folders):
        assert sampled(folder) == read_dataset_manifest(folder).fingerprint is not None
        request = request_for("images", folder)
        facts = find_dataset("images", str(folder))
        assert {fingerprint_of(request, facts, rank, 40) for rank in (0, 17, 39)} == {sampled(folder)}
    assert sampled(shards, synthetic_input=True) is None


def test_the_digits_are_the_registered_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sampled(None, "digits") == REGISTERED["digits"]
    monkeypatch.setitem(REGISTERED, "digits", "0" * 64)
    with pytest.raises(DatasetError, match="digits of the installed scikit-learn are others"):
        sampled(None, "digits")


def test_images_of_another_data_set_are_found_by_the_sample(shards: Path, folders: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    shutil.copytree(shards, folder)
    victim = folder / "train-00001-of-00004"
    label, encoded = list(read_shard(victim))[4]
    images = [Image("", *item) for item in read_shard(victim)]
    black = tf.io.encode_jpeg(np.zeros((9, 9, 3), np.uint8)).numpy()
    for forged, reason in (
        (Image("", label, black), "another image or label"),
        (Image("", label % CLASSES + 1, encoded), "another image or label"),
        (images[3], "repeated"),
    ):
        write_shard(victim, [*images[:4], forged, *images[5:]])
        with pytest.raises(DatasetError, match=rf"1 of 46 .*: train-00001-of-00004, image 4 \({reason}\)"):
            sampled(folder)
    write_shard(victim, images[:4])
    with pytest.raises(DatasetError, match="train-00001-of-00004: ends before image 4 does"):
        sampled(folder)
    shutil.copytree(folders, tmp_path / "files")
    (tmp_path / "files" / "validation" / "class2" / "0001.JPEG").write_bytes(black)
    with pytest.raises(DatasetError, match=r"1 of 13 .*: validation/class2/0001.JPEG \(validation.index, image 5\)"):
        sampled(tmp_path / "files")


def test_validation_images_that_are_trained_on_are_found_by_a_run(shards: Path, tmp_path: Path) -> None:
    """With other labels, and with descriptions that fit."""
    folder = shutil.copytree(shards, tmp_path / "data")
    trained = [
        Image("", label % CLASSES + 1, encoded) for label, encoded in read_shard(folder / "train-00001-of-00004")
    ]
    (victim,) = folder.glob("validation-00000-of-*")
    kept = list(read_shard(victim))
    write_shard(victim, [*trained, *(Image("", *item) for item in kept[len(trained) :])][: len(kept)])
    assert aiperf("dataset", "check", folder, "--write-manifest").returncode != 2
    with pytest.raises(DatasetError, match="sampled validation images are training images, too"):
        sampled(folder)


def test_a_list_of_images_that_is_not_the_fingerprints_is_refused(shards: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(shards, folder)
    shutil.copy(folder / entries_name("validation"), folder / entries_name("train"))
    with pytest.raises(DatasetError, match=r"fingerprints-train\.bin: is not the list of images"):
        sampled(folder)
    (folder / entries_name("train")).unlink()
    with pytest.raises(DatasetError, match=r"No such file.*fingerprints-train.bin.*--write-manifest"):
        sampled(folder)


def test_nothing_that_counts_can_be_learned_from_synthetic_images() -> None:
    source = source_for("digits", synthetic_input=True)
    (train, _), *_ = source.train_batches(64, 1, 1, RankShare())
    batches = list(source.validation_batches(64, RankShare()))
    assert not np.allclose(np.asarray(train), np.asarray(batches[0][0]))
    labels = [np.asarray(labels).argmax(axis=1) for _, labels in batches]
    # Whatever a network answers to each of the 64 images, it is right in about one of ten.
    same = np.stack(labels[:-1])
    assert max((same == same[0]).mean(axis=1)[1:]) < 0.3
    assert np.bincount(np.concatenate(labels)).max() < 0.15 * sum(map(len, labels))


def test_a_directory_without_description_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"dataset\.json: No such file.*aiperf dataset prepare.*--write-manifest"):
        source_for("images", tmp_path)


def test_epochs_are_opened_ahead_and_their_failures_come_when_they_are_used(shards: Path) -> None:
    request = request_for("images", shards)
    source = source_for("images", shards)
    epochs = Epochs(source, request, RankShare(), SystemClock())
    epochs.open(1)
    assert sum(counted(epochs.train(1), source)[0]) == TRAIN
    assert sum(counted(epochs.validation(), source)[0]) == VALIDATION
    assert sum(counted(epochs.validation(), source)[0]) == VALIDATION


class SlowSource:
    """A source whose batches take seconds each by a clock that stands still otherwise."""

    def __init__(self, seconds: Sequence[float], clock: ManualClock) -> None:
        self._seconds, self._clock = seconds, clock

    def train_batches(self, batch_size: int, seed: int, epoch: int, share: RankShare) -> Batches:
        for seconds in self._seconds:
            self._clock.pause(seconds)
            yield np.zeros(1), np.zeros(1)

    def validation_batches(self, batch_size: int, share: RankShare) -> Batches:
        return iter(())


def test_the_time_for_which_a_training_waits_for_its_batches_is_measured(shards: Path) -> None:
    clock = ManualClock()
    source: Any = SlowSource([5.0, 0.5, 0.25], clock)
    epochs = Epochs(source, request_for("images", shards), RankShare(), clock)
    for epoch in (1, 2):
        epochs.open(epoch)
        epochs._train[epoch].result()  # the first batch is fetched ahead
        batches = epochs.train(epoch)
        next(batches)
        assert epochs.waited_s == 0
        clock.pause(100)  # a step
        assert len(list(batches)) == 2
        assert epochs.waited_s == pytest.approx(0.75)
