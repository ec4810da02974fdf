"""`aiperf dataset`: shards from archives and folders, every problem found, work resumed."""

import hashlib
import io
import json
import re
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import tensorflow as tf

from aiperf.config.dataset_manifest import MANIFEST_NAME, FileEntry, read_dataset_manifest
from aiperf.config.datasets import data_problems
from aiperf.config.fingerprints import image_entry
from aiperf.errors import DatasetError
from tests.support.folders import GOLDEN
from tests.support.hand_made import aiperf
from tests.support.images import make_folders, make_shards, silent
from workloads.datasets.check import check, describe
from workloads.datasets.content import About, Contents, FileContent, repetition, write_description
from workloads.datasets.encoding import as_rgb_jpeg, jpeg_components
from workloads.datasets.examine import examine_files
from workloads.datasets.layouts import TRAIN_TAR
from workloads.datasets.prepare import JOURNAL_NAME, prepare, shard_jobs
from workloads.datasets.progress import shown_progress
from workloads.datasets.shards import Image, read_shard, write_shard
from workloads.datasets.sources import DEVKIT_TAR, VALIDATION_TAR, Place, open_source

SYNSETS = ("n01", "n02", "n03")
CMYK_JPEG = GOLDEN / "cmyk.jpg"


def picture(number: int) -> bytes:
    pixels = np.full((24, 30, 3), number * 7 % 256, np.uint8)
    return bytes(tf.io.encode_jpeg(pixels).numpy())


def add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    """ILSVRC2012's three archives in their real structure, with three classes."""
    folder = tmp_path / "ilsvrc"
    folder.mkdir()
    with tarfile.open(folder / TRAIN_TAR, "w") as outer:
        for label, synset in enumerate(SYNSETS, start=1):
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as archive:
                for number in range(4):
                    add(archive, f"{synset}_{number}.JPEG", picture(10 * label + number))
            add(outer, f"{synset}.tar", inner.getvalue())
    with tarfile.open(folder / VALIDATION_TAR, "w") as archive:
        for number in (3, 1, 2):
            add(archive, f"ILSVRC2012_val_{number:08d}.JPEG", picture(100 + number))
    # The kit's own numbers are not alphabetical: 1 is n02, 2 is n03, 3 is n01.
    kinds = [("ILSVRC2012_ID", "i4"), ("WNID", "U9")]
    meta = io.BytesIO()
    scipy.io.savemat(meta, {"synsets": np.array([(1, "n02"), (2, "n03"), (3, "n01")], dtype=kinds)})
    with tarfile.open(folder / DEVKIT_TAR, "w:gz") as archive:
        add(archive, "ILSVRC2012_devkit_t12/data/meta.mat", meta.getvalue())
        add(archive, "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt", b"3\n1\n2\n")
    return folder


def content(folder: Path, split: str) -> list[tuple[int, bytes]]:
    return [item for path in sorted(folder.glob(f"{split}-*")) for item in read_shard(path)]


def test_archives_become_shards_with_labels_by_synset(archives: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    done = aiperf("dataset", "prepare", archives, output, "--train-shards", 2, "--validation-shards", 1, "--workers", 1)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [f"{number} of 3 files" for number in (1, 2, 3)], "no worker says anything"
    assert "12 training and 3 validation images of 3 classes, tfrecord" in done.stdout
    assert sorted(path.name for path in output.iterdir()) == [
        MANIFEST_NAME,
        "fingerprints-train.bin",
        "fingerprints-validation.bin",
        "preparation.json",
        "train-00000-of-00002",
        "train-00001-of-00002",
        "validation-00000-of-00001",
    ]
    wanted = {(label, picture(10 * label + number)) for label in (1, 2, 3) for number in range(4)}
    assert set(content(output, "train")) == wanted
    assert content(output, "validation") == [(1, picture(101)), (2, picture(102)), (3, picture(103))]
    manifest = read_dataset_manifest(output)
    assert manifest.class_names == SYNSETS
    entries = sorted(hashlib.sha256(data).digest() + label.to_bytes(4, "big") for label, data in wanted)
    assert manifest.train.fingerprint == hashlib.sha256(b"".join(entries)).hexdigest()
    assert (output / "fingerprints-train.bin").read_bytes() == b"".join(entries)
    both = bytes.fromhex(manifest.train.fingerprint + str(manifest.validation.fingerprint))
    assert manifest.fingerprint == hashlib.sha256(both).hexdigest()
    assert manifest.fingerprint in done.stdout
    checked = aiperf("dataset", "check", output, "--workers", 1)
    assert (checked.returncode, checked.stdout.splitlines()[-1][-13:]) == (0, " 0 problem(s)")


def test_a_missing_archive_is_named(archives: Path, tmp_path: Path) -> None:
    (archives / DEVKIT_TAR).unlink()
    done = aiperf("dataset", "prepare", archives, tmp_path / "out")
    assert done.returncode == 2
    assert f"{DEVKIT_TAR} is missing" in done.stderr
    nothing = aiperf("dataset", "prepare", tmp_path / "none", tmp_path / "out")
    assert nothing.returncode == 2
    assert "none: does not exist; wanted is a folder with ILSVRC2012_img_train.tar" in nothing.stderr


def test_an_interrupted_preparation_is_resumed(tmp_path: Path) -> None:
    make_folders(tmp_path / "in")
    source, output = open_source(tmp_path / "in"), tmp_path / "out"
    shards: Any = {"train": 3, "validation": 1}
    bad = tmp_path / "in/train/class1/0000.JPEG"
    kept = bad.read_bytes()
    bad.unlink()
    with pytest.raises(DatasetError, match=r"class1/0000\.JPEG: No such file or directory"):
        prepare(source, output, shards, 32, silent, workers=1)
    assert not (output / MANIFEST_NAME).exists()
    before = {path.name: path.stat().st_mtime_ns for path in output.glob("*-of-*")}
    assert len((output / JOURNAL_NAME).read_text().splitlines()) == 1 + 3
    bad.write_bytes(kept)
    assert prepare(open_source(tmp_path / "in"), output, shards, 32, silent, workers=1).fingerprint is not None
    after = {path.name: path.stat().st_mtime_ns for path in output.glob("*-of-*")}
    assert len([name for name in after if after[name] != before[name]]) == 1, "only the bad shard is made again"
    assert check(output, silent, workers=1).problems == ()
    assert not (output / JOURNAL_NAME).exists()


def test_another_preparation_is_not_mixed_in(tmp_path: Path) -> None:
    make_folders(tmp_path / "in")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / JOURNAL_NAME).write_text('["other"]\n')
    with pytest.raises(DatasetError, match="unfinished preparation of other data"):
        prepare(open_source(tmp_path / "in"), tmp_path / "out", {"train": 1, "validation": 1}, 32, silent, 1)
    with pytest.raises(DatasetError, match="46 train images cannot fill 47 shards"):
        list(shard_jobs(open_source(tmp_path / "in").train, "train", 47, tmp_path))


def test_check_lists_every_problem(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    make_shards(folder)
    manifest = json.loads((folder / MANIFEST_NAME).read_text())
    manifest["class_names"] = manifest["class_names"][:2]
    manifest["train"]["files"][1]["images"] += 5
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest))
    (folder / "train-00000-of-00004").unlink()
    shutil.copy(folder / "train-00001-of-00004", folder / "stray")
    shutil.move(folder / "fingerprints-validation.bin", folder / "fingerprints-train.bin")
    victim = folder / "validation-00001-of-00002"
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 0xFF
    victim.write_bytes(data)
    done = aiperf("dataset", "check", folder, "--workers", 1)
    assert done.returncode == 1
    for problem in (
        "train-00000-of-00004: is missing",
        "stray: does not belong to the data set",
        "train-00001-of-00004: holds 12 images, not 17",
        "train-00001-of-00004: has label 3, but there are 2 classes",
        "validation-00001-of-00002: damaged after image",
        "validation-00001-of-00002: its checksum is not that of dataset.json",
        "train: the fingerprint of its images is ",
        "fingerprints-train.bin: is not the list of images that dataset.json names",
        "fingerprints-validation.bin: No such file",
    ):
        assert problem in done.stdout
    assert "problem(s)" in done.stdout.splitlines()[-1]


def test_files_made_elsewhere_are_described(tmp_path: Path) -> None:
    make_shards(tmp_path / "a")
    wanted, text = read_dataset_manifest(tmp_path / "a"), (tmp_path / "a" / MANIFEST_NAME).read_text()
    # One of before there were fingerprints keeps the names of its classes.
    (tmp_path / "a" / MANIFEST_NAME).write_text(re.sub('"fingerprint": ".*"', '"fingerprint": null', text))
    assert read_dataset_manifest(tmp_path / "a").fingerprint is None
    assert describe(tmp_path / "a", None, silent, 1) == wanted
    (tmp_path / "a" / MANIFEST_NAME).unlink()
    done = aiperf("dataset", "check", tmp_path / "a", "--write-manifest", "--image-size", 32, "--workers", 1)
    assert done.returncode == 0, done.stderr
    found = read_dataset_manifest(tmp_path / "a")
    assert (found.train, found.validation, found.image_size) == (wanted.train, wanted.validation, 32)
    make_folders(tmp_path / "b")
    assert describe(tmp_path / "b", 32, silent, 1).train.images == wanted.train.images
    damaged = tmp_path / "b/train/class2/0001.JPEG"
    damaged.write_bytes(damaged.read_bytes()[:100])
    (tmp_path / "b/train/class1/note.txt").write_text("not an image")
    (tmp_path / "b/validation/class1/0000.JPEG").unlink()
    problems = check(tmp_path / "b", silent, workers=1).problems
    assert [problem for problem in sorted(problems) if "fingerprint" not in problem] == [
        "train/class1/note.txt: does not belong to the data set",
        "train/class2/0001.JPEG: cannot be decoded as JPEG",
        "validation/class1/0000.JPEG: No such file or directory",
    ]


def test_only_jpegs_are_described_as_they_are(tmp_path: Path) -> None:
    """The training decodes crops of JPEGs; of a PNG it could not."""
    (tmp_path / "picture.png").write_bytes(bytes(tf.io.encode_png(np.zeros((5, 6, 4), np.uint8)).numpy()))
    (problem,) = examine_files([Place("picture.png", 1, tmp_path / "picture.png")]).problems
    assert problem.startswith("picture.png: is a PNG image, not a JPEG, and only JPEGs are trained; aiperf dataset")


def test_files_that_are_no_part_of_described_folders_are_named(tmp_path: Path) -> None:
    make_folders(tmp_path)
    (tmp_path / "train/class1/note.txt").write_text("not an image")
    described = aiperf("dataset", "check", tmp_path, "--write-manifest", "--workers", 1)
    assert described.returncode == 0
    assert described.stderr.splitlines() == [
        "1 of 2 files",
        "2 of 2 files",
        "note: train/class1/note.txt: does not belong to the data set",
    ]


class Terminal(io.StringIO):
    """Takes what a terminal would show."""

    def isatty(self) -> bool:
        """Say that it is one."""
        return True


def test_progress_is_a_bar_with_the_time_left_on_a_terminal_and_lines_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr("sys.stderr", stream)
        with shown_progress() as report:
            for done in range(1, 61):
                report(done, 60)
        if stream.isatty():
            assert re.search(r"60/60.* files .*left:.*0:00:00", stream.getvalue())
        else:
            assert stream.getvalue().splitlines() == [f"{done} of 60 files" for done in range(3, 61, 3)]


def test_a_few_images_listed_many_times_in_both_splits_are_a_problem(tmp_path: Path) -> None:
    images = [Image(f"{number}.JPEG", number % 2 + 1, picture(number)) for number in range(4)] * 10
    contents: Contents = {
        split: [write_shard(tmp_path / f"{split}-00000-of-00001", images)] for split in ("train", "validation")
    }
    write_description(tmp_path, "tfrecord", About("forged", 32, ("a", "b")), contents)
    result = check(tmp_path, silent, workers=1)
    assert len(result.problems) == 3
    assert result.problems[0].startswith("40 of 40 validation images are training images: validation-00000-of-00001, ")
    for split, problem in zip(("train", "validation"), result.problems[1:], strict=True):
        assert problem.startswith(f"{split}: 36 of 40 images repeat others: ")
        assert f"{split}-00000-of-00001, image 0 is {split}-00000-of-00001, image 4" in problem


def test_one_repeated_image_of_many_is_only_noted() -> None:
    def content(name: str, numbers: list[int]) -> FileContent:
        entry = FileEntry(name=name, images=len(numbers), size_bytes=0, sha256="")
        return FileContent(entry, b"".join(image_entry(bytes([number]), 1) for number in numbers))

    contents: Contents = {
        "train": [content("a", list(range(150))), content("b", [7])],
        "validation": [content("c", [200, 201])],
    }
    assert repetition(contents) == ([], ["train: 1 of 151 images repeat others: a, image 7 is b, image 0"])


def test_only_the_whole_of_imagenet_is_imagenet(tmp_path: Path) -> None:
    make_shards(tmp_path / "data")
    assert data_problems("images", str(tmp_path / "data")) == []
    (problem,) = data_problems("imagenet", str(tmp_path / "data"))
    assert "found 46, 13 and 3; use --dataset images" in problem
    (problem,) = data_problems("imagenet", None)
    assert "needs the directory of its files" in problem
    assert data_problems("images", str(tmp_path / "none"), must_exist=False) == []
    done = aiperf("run", "--data-dir", tmp_path / "data", "--output", tmp_path / "run")
    assert done.returncode == 2
    assert "found 46, 13 and 3" in done.stderr


def test_images_of_other_kinds_become_rgb_jpegs() -> None:
    jpeg, png = picture(5), bytes(tf.io.encode_png(np.zeros((5, 6, 3), np.uint8)).numpy())
    grey = bytes(tf.io.encode_jpeg(np.zeros((5, 6, 1), np.uint8)).numpy())
    assert [jpeg_components(data) for data in (jpeg, png, grey)] == [3, None, 1]
    assert as_rgb_jpeg(jpeg) is jpeg
    assert as_rgb_jpeg(grey) is grey
    assert jpeg_components(as_rgb_jpeg(png)) == 3
    cmyk = CMYK_JPEG.read_bytes()
    assert jpeg_components(cmyk) == 4
    converted = as_rgb_jpeg(cmyk)
    assert jpeg_components(converted) == 3
    red = tf.io.decode_jpeg(converted).numpy().mean(axis=(0, 1))
    assert red[0] > 150
    assert red[1] < 100


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--train", "3", "--classes", "5"], "3 train images are too few"),
        (["--classes", "1"], "at least 2 classes"),
        (["--train", "0"], "is not a whole number of at least 1"),
    ],
)
def test_impossible_recipes_are_refused(tmp_path: Path, words: list[str], message: str) -> None:
    done = aiperf("dataset", "synthesize", tmp_path / "out", *words)
    assert (done.returncode, message in done.stderr) == (2, True)
    assert not (tmp_path / "out").exists()
