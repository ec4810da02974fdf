"""Data as people bring it: converted, left out or refused, and named, never in silence."""

import gzip
import json
import os
import shutil
import struct
import unicodedata
import warnings
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from aiperf.config.dataset_manifest import MANIFEST_NAME, read_dataset_manifest
from aiperf.config.fingerprints import image_entry
from aiperf.errors import AiperfError, DatasetError, UsageError
from aiperf.untrusted.images import decode_image
from replica.measure.counting.source import file_source
from tests.support.images import silent
from workloads.datasets import check as checks
from workloads.datasets import prepare as preparing
from workloads.datasets.check import check, describe
from workloads.datasets.cli import DATASET
from workloads.datasets.content import FileContent
from workloads.datasets.encoding import as_rgb_jpeg, encode_jpeg, kind_of
from workloads.datasets.examine import Findings, examine_files, examine_shard
from workloads.datasets.preparation import REPORT_NAME, Preparation
from workloads.datasets.prepare import prepare
from workloads.datasets.shards import Image as Record
from workloads.datasets.shards import _example, checksum, write_shard
from workloads.datasets.sources import Place, open_folders


def pixels(number: int = 0) -> NDArray[np.uint8]:
    ramp = np.linspace(0, 255, 32)[:, None, None] * np.array([1, 0.5, number % 7 / 7])
    return np.repeat(ramp, 24, axis=1).astype(np.uint8)


def jpeg(number: int = 0) -> bytes:
    return encode_jpeg(pixels(number), 90)


def saved(array: NDArray[Any], form: str, mode: str | None = None, **options: Any) -> bytes:
    stream = BytesIO()
    image = Image.fromarray(array, "CMYK") if mode == "CMYK" else Image.fromarray(array)
    (image if mode in (None, "CMYK") else image.convert(mode)).save(stream, form, **options)
    return stream.getvalue()


def folders(root: Path, train: int = 3, validation: int = 1, classes: tuple[str, ...] = ("a", "b")) -> Path:
    """Folders of small JPEGs, none twice."""
    number = 0
    for split, count in (("train", train), ("validation", validation)):
        for name in classes:
            (root / split / name).mkdir(parents=True)
            for index in range(count):
                (root / split / name / f"{index}.jpg").write_bytes(encode_jpeg(pixels(number) // (number + 1), 90))
                number += 1
    return root


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make and examine shards without a pool of processes."""
    monkeypatch.setattr(preparing, "_write_all", lambda jobs, workers: map(preparing.write_job, jobs))

    def examined(files: list[Path], report: object, workers: int) -> dict[str, Findings]:
        return {path.name: examine_shard(path) for path in files}

    monkeypatch.setattr(checks, "examine_shards", examined)
    monkeypatch.setattr(
        checks, "examine_folder",
        lambda places, report, workers: {split: examine_files(own) for split, own in places.items()},
    )  # fmt: skip


def prepared(source: Path, output: Path) -> Preparation:
    prepare(open_folders(source), output, {"train": 2, "validation": 1}, 32, silent, 1)
    return Preparation.model_validate_json((output / REPORT_NAME).read_bytes())


# Images (rows 1, 6, 18, 22, 23)


def png_of_16_bits(values: NDArray[np.uint16], colour_type: int) -> bytes:
    """A PNG as libraries other than Pillow write it (ISO 15948), with 1 to 4 samples a pixel."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], 16, colour_type, 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(("colour_type", "samples"), [(0, 1), (2, 3), (4, 2), (6, 4)])
def test_images_of_16_bits_are_scaled_not_clipped(colour_type: int, samples: int) -> None:
    deep = (np.arange(64 * 64).reshape(64, 64) * 16).astype(np.uint16)
    data = png_of_16_bits(np.repeat(deep[..., None], samples, axis=2), colour_type)
    found = np.asarray(Image.open(BytesIO(as_rgb_jpeg(data))))
    twin = np.asarray(Image.open(BytesIO(as_rgb_jpeg(saved((deep >> 8).astype(np.uint8), "PNG")))))
    assert np.array_equal(found, twin)
    assert abs(found.mean() - (deep >> 8).mean()) < 1
    assert kind_of(data).startswith("PNG, 16 bits")


def test_cmyk_is_converted_with_and_without_adobes_marker() -> None:
    inks = np.linspace(0, 255, 32 * 32 * 4).reshape(32, 32, 4).astype(np.uint8)
    adobe = saved(inks, "JPEG", "CMYK", quality=95)
    place = adobe.index(b"\xff\xee")
    bare = adobe[:place] + adobe[place + 2 + int.from_bytes(adobe[place + 2 : place + 4]) :]
    # Without the marker the same bytes mean the inks themselves (libjpeg, and TensorFlow).
    for data, stored in ((adobe, inks), (bare, 255 - inks)):
        rest = 255 - stored.astype(int)
        wanted = rest[..., :3] * rest[..., 3:] // 255
        assert abs(np.asarray(Image.open(BytesIO(as_rgb_jpeg(data)))).astype(int) - wanted).mean() < 3
        assert kind_of(data) == "JPEG, CMYK"


@pytest.mark.parametrize("fill", [b"\xff", b"\xff\xff\xff"])
def test_fill_bytes_before_a_marker_change_nothing(fill: bytes) -> None:
    plain = jpeg()
    for marker in (b"\xff\xc0", b"\xff\xdb", b"\xff\xc4"):
        place = plain.index(marker)
        odd = plain[:place] + fill + plain[place:]
        assert as_rgb_jpeg(odd) is odd


def test_what_is_lost_of_other_formats_is_named() -> None:
    colours = np.dstack([pixels(), np.full((32, 24), 9, np.uint8)])
    animated = saved(pixels(), "GIF", save_all=True, append_images=[Image.fromarray(255 - pixels())])
    assert kind_of(saved(colours, "PNG")) == "PNG, transparency dropped"
    assert kind_of(animated) == "GIF, first frame"
    assert kind_of(saved(pixels(), "BMP")) == "BMP"


def test_damaged_metadata_of_an_image_warns_of_nothing() -> None:
    stream = BytesIO()
    Image.fromarray(pixels()).save(stream, "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + b"\x99" * 30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decode_image(stream.getvalue(), "JPEG").size == (24, 32)
        inks = saved(np.zeros((8, 8, 4), np.uint8), "JPEG", "CMYK")
        damaged = inks[:2] + b"\xff\xe1\0\x14Exif\0\0II*\0\x08\0\0\0\xff\xff\1\2" + inks[2:]
        assert kind_of(damaged) == "JPEG, CMYK"


OTHERS = {
    "empty.jpg": (b"", "is empty"),
    "page.jpg": (b"\n<!DOCTYPE HTML><html>", "is a page of HTML"),
    "fork.jpg": (b"\0\5\x16\7" + bytes(40), "is the metadata of a file on a Mac (AppleDouble)"),
    "webp.jpg": (b"RIFF\0\0\0\0WEBPVP8 ", "is a WebP image"),
    "heic.jpg": (b"\0\0\0\x18ftypheic", "is a HEIC image"),
    "lfs.jpg": (b"version https://git-lfs.github.com/spec/v1\n", "is a pointer of Git LFS, without the file itself"),
    "zeros.jpg": (bytes(400), "is nothing but zeros"),
    "cut.jpg": (jpeg()[:300], "is a JPEG image that cannot be decoded"),
    "zip.jpg": (b"PK\3\4", "is a ZIP archive"),
}


def test_files_that_are_no_images_are_left_out_and_named(tmp_path: Path) -> None:
    source = folders(tmp_path / "in")
    for name, (data, _) in OTHERS.items():
        (source / "train/a" / name).write_bytes(data)
    (source / "train/b/deep.png").write_bytes(saved(np.full((9, 9), 40_000, np.uint16), "PNG"))
    report = prepared(source, tmp_path / "out")
    assert {names[0]: reason for reason, names in report.left_out.items()} == {
        f"train/a/{name}": reason for name, (_, reason) in OTHERS.items()
    }
    assert report.converted == {"PNG, 16 bits": ("train/b/deep.png",)}
    assert report.model_dump()["classes"] == {"a": {"train": 3, "validation": 1}, "b": {"train": 4, "validation": 1}}
    result = check(tmp_path / "out", silent, 1)
    assert (result.images, result.problems) == ({"train": 7, "validation": 2}, ())
    assert any("1 left out (is a page of HTML): train/a/page.jpg" in note for note in result.notes)
    (tmp_path / "out" / REPORT_NAME).write_text(report.model_copy(update={"fingerprint": "0" * 64}).model_dump_json())
    assert check(tmp_path / "out", silent, 1).problems == ("preparation.json: is of other data than dataset.json",)


def test_check_says_what_files_are_that_are_not_trained(tmp_path: Path) -> None:
    inks = saved(np.zeros((8, 8, 4), np.uint8), "JPEG", "CMYK")
    for name, data in {"page.jpg": OTHERS["page.jpg"][0], "cmyk.jpg": inks, "x.png": saved(pixels(), "PNG")}.items():
        (tmp_path / name).write_bytes(data)
    places = [Place(name, 1, tmp_path / name) for name in ("page.jpg", "cmyk.jpg", "x.png")]
    assert examine_files(places).problems == (
        "page.jpg: is a page of HTML, not a JPEG, and only JPEGs are trained",
        "cmyk.jpg: has four components (CMYK), which decoders read differently; aiperf dataset prepare converts it",
        "x.png: is a PNG image, not a JPEG, and only JPEGs are trained; aiperf dataset prepare converts it",
    )


# Folders (rows 2, 3, 16, 24)


def test_pipes_are_left_out_and_not_waited_for(tmp_path: Path) -> None:
    source = folders(tmp_path / "in")
    os.mkfifo(source / "train/a/pipe.jpg")
    assert open_folders(source).left_out == (("train/a/pipe.jpg", "no file, but a pipe, socket or device"),)


def test_validation_images_of_which_none_can_be_decoded_are_refused(tmp_path: Path) -> None:
    source = folders(tmp_path / "in")
    for path in (source / "validation").glob("*/*"):
        path.write_bytes(b"<html>")
    with pytest.raises(DatasetError, match=r"no validation image can be decoded; .*0\.jpg \(is a page of HTML\)"):
        prepared(source, tmp_path / "out")
    assert not (tmp_path / "out" / MANIFEST_NAME).exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ImageId;PredictionString\n", "its columns are ImageId;PredictionString, not ImageId, PredictionString"),
        ("ImageId,PredictionString\ni0,a\ni1,\n", "line 3: image i1 has no class"),
        ("ImageId,PredictionString\ni0,a 1 2 3 4\ni0,b\n", "line 3: image i0 has two classes"),
    ],
)
def test_wrong_lists_of_labels_are_refused_with_the_line(tmp_path: Path, text: str, words: str) -> None:
    source = folders(tmp_path / "in")
    shutil.rmtree(source / "validation")
    (source / "val").mkdir()
    (source / "val/i0.JPEG").write_bytes(jpeg())
    path = source / "LOC_val_solution.csv"
    path.write_text(text)
    with pytest.raises(DatasetError, match=words):
        open_folders(source)
    path.write_bytes(b"\xef\xbb\xbfImageId,PredictionString\r\ni0,b 1 2 3 4\r\n")
    found = open_folders(source)
    assert ([place.label for place in found.validation], found.left_out) == ([2], ())


def test_technical_folders_other_suffixes_and_sub_folders_are_no_images_and_named(tmp_path: Path) -> None:
    source = folders(tmp_path / "in")
    plain = prepared(source, tmp_path / "plain").fingerprint
    for place in ("train/.ipynb_checkpoints", "train/__MACOSX", "validation/.git", "train/a/@eaDir", "train/a/inner"):
        shutil.copytree(source / "train/b", source / place)
    for name in ("train/a/x.webp", "train/a/._0.jpg", "train/b/Thumbs.db", "train/list.txt", "labels.csv"):
        (source / name).write_bytes(b"x")
    report = prepared(source, tmp_path / "out")
    assert report.fingerprint == plain
    assert report.left_out == {
        "a folder in a class folder": ("train/a/inner/ (files: 3)",),
        "neither in train/ nor in the folder of validation images": ("labels.csv",),
        "of a program or file system": (
            "train/.ipynb_checkpoints/ (files: 3)", "train/__MACOSX/ (files: 3)", "train/a/._0.jpg",
            "train/a/@eaDir/ (files: 3)", "train/b/Thumbs.db", "validation/.git/ (files: 3)",
        ),
        "outside of the class folders": ("train/list.txt",),
        "the suffix '.webp'": ("train/a/x.webp",),
    }  # fmt: skip


def test_a_class_without_training_images_is_refused(tmp_path: Path) -> None:
    source = folders(tmp_path / "in")
    (source / "train/empty").mkdir()
    with pytest.raises(DatasetError, match="1 of 3 class folders hold no images: 'empty'; remove them"):
        open_folders(source)
    (source / "train/empty/x.jpg").write_bytes(b"<html>")
    with pytest.raises(DatasetError, match=r"1 classes have no training image .*'empty'.*x\.jpg \(is a page of HTML\)"):
        prepared(source, tmp_path / "out")


def test_a_data_set_with_the_folder_of_a_program_as_a_class_is_a_problem(tmp_path: Path) -> None:
    prepared(folders(tmp_path / "in"), tmp_path / "out")
    path = tmp_path / "out" / MANIFEST_NAME
    document = json.loads(path.read_text())
    document["class_names"] = [".ipynb_checkpoints", "a", "b"]
    path.write_text(json.dumps(document))
    problems = check(tmp_path / "out", silent, 1).problems
    assert any("class 1 is '.ipynb_checkpoints', the folder of a program" in line for line in problems)
    assert "train: 1 of 3 classes have no images: b" in problems


def test_validation_images_without_folders_need_the_list_of_kaggle(tmp_path: Path) -> None:
    root = folders(tmp_path / "kaggle/ILSVRC/Data/CLS-LOC", classes=("n01", "n02"))
    flat = root / "val"
    flat.mkdir()
    for number, name in enumerate(("n02", "n01")):
        shutil.move(root / "validation" / name / "0.jpg", flat / f"ILSVRC2012_val_{number}.JPEG")
    shutil.rmtree(root / "validation")
    (root / "test").mkdir()
    with pytest.raises(DatasetError, match=r"val: 2 images lie in val/ itself .* LOC_val_solution\.csv"):
        open_folders(tmp_path / "kaggle")
    labels = "ImageId,PredictionString\nILSVRC2012_val_0,n02 1 2 3 4 n02 5 6 7 8 \nILSVRC2012_val_1,n01 1 2 3 4 \n"
    (tmp_path / "kaggle/LOC_val_solution.csv").write_text(labels)
    (tmp_path / "kaggle/LOC_synset_mapping.txt").write_text("n01 tench, Tinca tinca\nn02 goldfish\n")
    for place in (tmp_path / "kaggle", tmp_path / "kaggle/ILSVRC", root):
        source = open_folders(place)
        assert [place.label for place in source.validation] == [2, 1]
        assert source.class_names == ("n01", "n02")
        assert [name for name, _ in source.left_out] == ["test/ (files: 0)"]
    (tmp_path / "kaggle/LOC_synset_mapping.txt").write_text("n01 a\nn02 b\nn03 c\n")
    with pytest.raises(DatasetError, match=r"1 of the 3 classes of LOC_synset_mapping\.txt have no folder: n03"):
        open_folders(root)
    (tmp_path / "kaggle/LOC_synset_mapping.txt").unlink()
    (tmp_path / "kaggle/LOC_val_solution.csv").write_text(labels.replace("val_1", "val_7"))
    with pytest.raises(DatasetError, match=r"2 images are only there or only in .*ILSVRC2012_val_1\.JPEG"):
        open_folders(root)


def test_names_in_other_forms_of_unicode_are_said_to_differ(tmp_path: Path) -> None:
    composed, apart = (unicodedata.normalize(form, "caf\u00e9") for form in ("NFC", "NFD"))
    source = folders(tmp_path / "in", classes=("a", composed))
    (source / "validation" / composed).rename(source / "validation" / apart)
    with pytest.raises(DatasetError, match=r"its bytes differ: cafe\\xcc\\x81, and caf\\xc3\\xa9 there"):
        open_folders(source)
    (source / "train" / apart).mkdir()
    with pytest.raises(DatasetError, match="two folders that read"):
        open_folders(source)


# Shards (rows 2, 7, 17)


def shard(folder: Path, split: str, number: int, count: int, labels: tuple[int, ...]) -> FileContent:
    images = [Record(str(label), label, jpeg(7 * number + place)) for place, label in enumerate(labels)]
    return write_shard(folder / f"{split}-{number:05d}-of-{count:05d}", images)


def test_a_missing_shard_is_named_and_nothing_described(tmp_path: Path) -> None:
    shard(tmp_path, "train", 0, 3, (1, 2))
    shard(tmp_path, "validation", 0, 1, (1, 2))
    with pytest.raises(DatasetError, match="train-00001-of-00003 is missing; train-00002-of-00003 is missing"):
        describe(tmp_path, 32, silent, 1)
    assert not (tmp_path / MANIFEST_NAME).exists()
    shard(tmp_path, "train", 0, 1, (1, 2))
    with pytest.raises(DatasetError, match=r"train shards of several sets \(1 of 1 and 1 of 3\)"):
        describe(tmp_path, 32, silent, 1)
    for path in tmp_path.glob("train-*"):
        path.unlink()
    with pytest.raises(DatasetError, match="no train shards, such as train-00000-of-00001"):
        describe(tmp_path, 32, silent, 1)


def test_shards_with_other_numbers_and_without_images_are_named(tmp_path: Path) -> None:
    for number in (1, 2):
        shard(tmp_path, "train", number, 2, (1, 2))
    shard(tmp_path, "validation", 0, 1, (1, 2))
    beyond = r"train-00000-of-00002 is missing; train-00002-of-00002: 2 shards have the numbers 0 to 1"
    with pytest.raises(DatasetError, match=beyond):
        describe(tmp_path, 32, silent, 1)
    (tmp_path / "train-00002-of-00002").rename(tmp_path / "train-00000-of-00002")
    (tmp_path / "train-00000-of-00002").write_bytes(b"")
    describe(tmp_path, 32, silent, 1)
    notes = checks.description_notes(tmp_path, read_dataset_manifest(tmp_path))
    assert notes == ("train-00000-of-00002: holds no images",)
    assert notes[0] in check(tmp_path, silent, 1).notes
    (tmp_path / "validation-00000-of-00001").write_bytes(b"")
    with pytest.raises(DatasetError, match="its validation shards hold no images"):
        describe(tmp_path, 32, silent, 1)
    (tmp_path / "validation-00000-of-00001").unlink()
    (tmp_path / "validation-00000-of-00001").mkdir()
    with pytest.raises(DatasetError, match="validation-00000-of-00001 is a folder"):
        describe(tmp_path, 32, silent, 1)
    (problem,) = examine_shard(tmp_path / "validation-00000-of-00001").problems
    assert problem == "validation-00000-of-00001: Is a directory"


def test_gaps_in_the_labels_of_shards_are_named(tmp_path: Path) -> None:
    shard(tmp_path, "train", 0, 1, (1, 4, 4))
    shard(tmp_path, "validation", 0, 1, (1, 2, 3, 4))
    describe(tmp_path, 32, silent, 1)
    notes = checks.description_notes(tmp_path, read_dataset_manifest(tmp_path))
    assert notes == ("train: 2 of 4 classes have no images: class 2, class 3",)
    assert notes[0] in check(tmp_path, silent, 1).notes


def example(path: Path, change: Callable[[bytes], bytes], label: int = 1) -> Findings:
    record = change(_example(Record("x", label, jpeg())))
    length = len(record).to_bytes(8, "little")
    path.write_bytes(length + checksum(length) + record + checksum(record))
    return examine_shard(path)


def test_shards_of_others_are_described_by_what_they_hold(tmp_path: Path) -> None:
    path = tmp_path / "train-00000-of-00001"
    (line,) = example(path, lambda record: record.replace(b"image/encoded", b"image/rencode")).problems
    assert "image 0: lacks feature image/encoded; it has image/class/label, image/filename, image/format, " in line
    text = struct.pack("BBB", 0x0A, 3, 0x0A) + b"\x01x"
    (line,) = example(path, lambda record: record.replace(b"\x1a\x03\x0a\x01\x01", text)).problems
    assert line.endswith("image 0: image/class/label holds bytes, and whole numbers are wanted")
    (line,) = example(path, lambda record: b"\x80\x04hello").problems
    assert "image 0: is no tf.train.Example: it " in line
    for label, word in ((0, "0 to 0"), (1_000_001, "1000001 to 1000001")):
        (line,) = example(path, bytes, label).problems
        assert f"has labels {word}; labels count from 1" in line
    minus_one = b"\xff" * 9 + b"\x01"
    write_shard(path, [Record("x", (1 << 64) - 1, jpeg())])
    assert minus_one in path.read_bytes()
    assert "has labels -1 to -1" in examine_shard(path).problems[0]
    path.write_bytes(gzip.compress(b"x" * 99))
    assert examine_shard(path).problems == (
        f"{path.name}, image 0: is not a record of TFRecord: the file is packed by gzip; "
        "only files that are not packed are read",
    )


def test_a_negative_label_does_not_change_the_entries_of_others() -> None:
    assert image_entry(b"x", -1)[-4:] == b"\xff\xff\xff\xff"


# What is no data set and no network (rows 11, 17, 19)


def refused_by(verb: str, path: Path) -> str:
    with pytest.raises(AiperfError) as error:
        if verb == "ops":
            file_source(path, None)
        else:
            parser = __import__("argparse").ArgumentParser()
            DATASET.configure(parser)
            DATASET.execute(
                parser.parse_args(["check", str(path), *(["--write-manifest"] if verb == "describe" else [])])
            )
    assert isinstance(error.value, UsageError | DatasetError)
    return error.value.lines[0]


HDF5 = b"\x89HDF\r\n\x1a\n"
FILES: dict[str, tuple[bytes, str]] = {
    "model.h5": (HDF5, "an HDF5 file"), "legacy.keras": (HDF5, "an HDF5 file"),
    "a.onnx": (b"\x08\x07", "an ONNX model"),
    "a.pt": (b"\x80\x02}q", "a pickle of Python"), "a.tflite": (b"\x1c\0\0\0TFL3", "a TensorFlow Lite model"),
    "a.pb": (b"\x0a\x05", "a graph of TensorFlow"), "a.zip": (b"PK\3\4", "a damaged ZIP archive"),
    "a.tar.gz": (b"\x1f\x8b\x08", "packed by gzip"), "a.tar": (bytes(257) + b"ustar", "a tar archive"),
    "a.png": (b"\x89PNG\r\n\x1a\n", "a PNG image"), "a.npy": (b"\x93NUMPY", "a NumPy array"),
    "a.yaml": (b"a: 1\n", "text"), "a.html": (b"<!-- x --><html>", "a page of HTML"), "empty": (b"", "empty"),
    "empty.keras": (b"", "empty"), "text.keras": (b"hello", "text"), "a.nc": (b"CDF\x01", "a NetCDF file"),
    "a.safetensors": (b"\x10\0\0\0", "weights (safetensors)"), "a.parquet": (b"PAR1", "a Parquet file"),
    "a.bin": (bytes(range(1, 256)), "of no known format"),
    "a.tfrecord": (b"\x10\0\0\1", "records of TensorFlow (TFRecord)"),
    "a.pdf": (b"%PDF-1.7", "a PDF document"), "lfs.keras": (b"version https://git-lfs", "a pointer of Git LFS"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_wrong_files_are_named_by_what_they_are_and_what_is_wanted(name: str, tmp_path: Path) -> None:
    content, words = FILES[name]
    path = tmp_path / name
    path.write_bytes(content)
    for verb, wanted in (
        ("ops", ".keras"),
        ("check", "wanted is a folder with"),
        ("describe", "wanted is a folder with"),
    ):
        line = refused_by(verb, path)
        assert line.startswith(f"{path}: is {words}"), line
        assert wanted in line, line


FOLDERS: dict[str, tuple[str, str]] = {
    "imagenet2012-train.tfrecord-00000-of-01024": ("a data set of TensorFlow Datasets", "class folders"),
    "features.json": ("a data set of TensorFlow Datasets", "class folders"),
    "train/train-00000-of-01024": ("shards in folders of their own", "mv "),
    "flowers_train_00000-of-00005.tfrecord": ("TFRecord files of other names", "train-00000-of-00004"),
    "a/1.jpg": ("1 folders of images", "not split into training and validation"),
    "1.jpg": ("1 images", "without folders of classes"),
    "data-00001.tar": ("tar archives", "wanted"), "a.parquet": ("Parquet files", "wanted"),
    "data.mdb": ("an LMDB database", "wanted"), "x.npz": ("arrays of NumPy", "wanted"),
    "mine/dataset.json": ("the data set", "name that folder"), "other.txt": ("'other.txt'", "wanted"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDERS)
def test_other_layouts_are_named_with_the_way_out(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"x")
    found, way_out = FOLDERS[name]
    with pytest.raises(DatasetError) as error:
        open_folders(tmp_path)
    assert f"{tmp_path}: holds {found}" in str(error.value)
    assert way_out in str(error.value)
    line = refused_by("describe", tmp_path)
    assert found in line


def test_a_description_of_another_program_is_not_read_as_one_of_images(tmp_path: Path) -> None:
    (tmp_path / MANIFEST_NAME).write_text('{"format": "hep-65"}')
    line = refused_by("check", tmp_path)
    assert "has the format 'hep-65'; known are tfrecord, folder, hep-64" in line
