"""Descriptions, indexes, journals and archives of images from other people: read, or refused."""

import gzip
import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from hypothesis import given, settings
from hypothesis import strategies as st

from aiperf.config.dataset_manifest import MANIFEST_NAME, read_dataset_manifest, read_index
from tests.hardening.archives.hostile import ADDED, END, extended, plain, record, sized
from tests.support.fuzz import examples, refusal
from workloads.datasets.check import check, describe, stray_files
from workloads.datasets.devkit import GROUND_TRUTH, META
from workloads.datasets.layouts import TRAIN_TAR
from workloads.datasets.prepare import JOURNAL_NAME, prepare
from workloads.datasets.sources import DEVKIT_TAR, VALIDATION_TAR, ImageSource, Place, open_source

FILE = {"name": "train.index", "images": 1, "size_bytes": 1, "sha256": "0" * 64}
GOOD: dict[str, Any] = {
    "format": "folder",
    "source": "here",
    "image_size": 64,
    "class_names": ["a", "b"],
    "train": {"files": [FILE]},
    "validation": {"files": [{**FILE, "name": "validation.index"}]},
}


def changed(*path: str | int, to: object) -> bytes:
    document = json.loads(json.dumps(GOOD))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return json.dumps(document).encode()


DESCRIPTIONS = {
    "nothing": b"",
    "a list": b"[]",
    "no UTF-8": b"\xff\xfe",
    "deep": b'{"a":' * 100_000,
    "NaN": b'{"image_size": NaN}',
    "a number of 5,000 digits": b'{"image_size": ' + b"9" * 5000 + b"}",
    "a lone surrogate": b'{"source": "\\ud800"}',
    "huge images": changed("train", "files", 0, "images", to=10**30),
    "negative images": changed("train", "files", 0, "images", to=-1),
    "no files": changed("train", "files", to=[]),
    "two indexes": changed("train", "files", to=[FILE, FILE]),
    "a name that leads out": changed("train", "files", 0, "name", to="../../etc/passwd"),
    "an absolute name": changed("train", "files", 0, "name", to="/etc/passwd"),
    "a NUL": changed("train", "files", 0, "name", to="a\0b"),
    "a long name": changed("train", "files", 0, "name", to="a" * 100_000),
    "one class": changed("class_names", to=["a"]),
    "a class that is a list": changed("class_names", 0, to=["a"]),
    "a million of classes too many": changed("class_names", to=["a"] * 1_000_001),
    "a huge image": changed("image_size", to=10**9),
    "a long unknown key": changed("x" * 100_000, to=1),
    "another version": changed("schema_version", to=2),
    "a fingerprint": changed("fingerprint", to="0" * 64),
}


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_a_description_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / MANIFEST_NAME).write_bytes(DESCRIPTIONS[name])
    for look in (read_dataset_manifest, lambda folder: check(folder, lambda *_: None, 1)):
        message = refusal(lambda look=look: look(tmp_path))  # type: ignore[misc]
        assert message.startswith(str(tmp_path / MANIFEST_NAME))


INDEXES = {
    "no label": b"train/a.jpg\n",
    "two labels": b"a.jpg\t1\t2\n",
    "a label of words": b"a.jpg\tone\n",
    "a label of 5,000 digits": b"a.jpg\t" + b"9" * 5000 + b"\n",
    "label 0": b"a.jpg\t0\n",
    "a negative label": b"a\t-1\n",
    "a label beyond the classes": b"a.jpg\t3\n",
    "no UTF-8": b"\xff\t1\n",
    "a NUL": b"a\0b\t1\n",
    "a path that leads out": b"../../../etc/passwd\t1\n",
    "an absolute path": b"/etc/passwd\t1\n",
    "an empty line": b"a.jpg\t1\n\n",
    "a long name": b"x" * 100_000 + b"\n",
}


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / MANIFEST_NAME).write_text(json.dumps(GOOD))
    (tmp_path / "train.index").write_bytes(INDEXES[name])
    (tmp_path / "validation.index").write_bytes(b"a.jpg\t1\n")
    manifest = read_dataset_manifest(tmp_path)
    assert "train.index: is not an index of images" in refusal(lambda: read_index(tmp_path, manifest, "train"))
    assert "train.index" in refusal(lambda: check(tmp_path, lambda *_: None, 1))
    (tmp_path / "train.index").unlink()
    (tmp_path / "train.index").mkdir()
    assert "train.index" in refusal(lambda: check(tmp_path, lambda *_: None, 1))


@settings(max_examples=examples(40))
@given(content=st.binary(max_size=120) | st.text(max_size=60).map(str.encode))
def test_indexes_of_any_kind(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp()
    (folder / MANIFEST_NAME).write_text(json.dumps(GOOD))
    (folder / "train.index").write_bytes(content)
    refusal(lambda: read_index(folder, read_dataset_manifest(folder), "train"))


JOURNALS = {
    "nothing": b"",
    "no UTF-8": b"\xff\xfe\n",
    "another run's": b"[]\n",
    "deep": b"[" * 100_000 + b"\n",
    "a folder": None,
}


@pytest.mark.parametrize("name", JOURNALS)
def test_a_journal_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    content = JOURNALS[name]
    if content is None:
        (tmp_path / JOURNAL_NAME).mkdir()
    else:
        (tmp_path / JOURNAL_NAME).write_bytes(content)
    place = Place("a", 1, tmp_path / "a.jpg")
    source = ImageSource("x", ("a", "b"), (place,), (place,))
    assert str(tmp_path) in refusal(
        lambda: prepare(source, tmp_path, {"train": 1, "validation": 1}, 64, lambda *_: None, 1)
    )


def test_1500_nested_folders_are_strays(tmp_path: Path) -> None:
    manifest_file = tmp_path / "data"
    subprocess.run(["mkdir", "-p", manifest_file / "/".join("d" * 1500)], check=True)
    document = {**GOOD, "format": "tfrecord"}
    (manifest_file / MANIFEST_NAME).write_text(json.dumps(document))
    assert stray_files(manifest_file, read_dataset_manifest(manifest_file))
    subprocess.run(["rm", "-r", manifest_file], check=True)  # deeper than pytest can remove


@pytest.mark.parametrize("name", [b"\xff\xfe", b"a\nb", b"\x1b[2J"], ids=["no UTF-8", "a newline", "an escape"])
def test_folders_with_names_that_cannot_be_shown_are_refused(name: bytes, tmp_path: Path) -> None:
    for split in ("train", "validation"):
        for kind in (b"good", name):
            folder = Path(str(tmp_path / split)) / kind.decode(errors="surrogateescape")
            folder.mkdir(parents=True)
            (folder / "a.jpg").write_bytes(b"x")
    message = refusal(lambda: describe(tmp_path, None, lambda *_: None, 1))
    assert "control characters" in message
    assert message.isprintable()


def kit(meta: bytes, truth: bytes = b"1\n") -> bytes:
    return gzip.compress(plain(META, meta) + plain(GROUND_TRUTH, truth) + END)


def classes(**values: Any) -> bytes:
    file = io.BytesIO()
    scipy.io.savemat(file, values or {"synsets": _SYNSETS})
    return file.getvalue()


_SYNSETS = np.array([(1, "n01"), (2, "n02")], dtype=[("ILSVRC2012_ID", "i4"), ("WNID", "U9")])
IMAGES = plain("n01.tar", plain("a.JPEG", b"x") + END) + plain("n02.tar", plain("b.JPEG", b"y") + END) + END


def huge_matrix() -> bytes:
    """A MATLAB file of 200 bytes whose cells would be two thousand million."""
    data = bytearray(classes(synsets=np.array([[3.0, 4.0]], object)))
    place = data.index(np.array([1, 2], "<i4").tobytes())
    data[place : place + 8] = np.array([50_000, 50_000], "<i4").tobytes()
    return bytes(data)


KITS: dict[str, bytes] = {
    "nothing": b"",
    "no gzip": b"not gzip",
    "an empty archive": gzip.compress(END),
    "only a header": kit(b"")[:40],
    "no MATLAB file": kit(b"no MATLAB file"),
    "an empty one": kit(b""),
    "a cut one": kit(classes()[:200]),
    "no synsets": kit(classes(other=1)),
    "numbers as synsets": kit(classes(synsets=np.arange(3))),
    "one number": kit(classes(synsets=7)),
    "text": kit(classes(synsets="text")),
    "a huge matrix": kit(huge_matrix()),
    "HDF5": kit(b"\x89HDF\r\n\x1a\n" + bytes(600)),
    "version 7.3": kit(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + bytes(600)),
    "a class that is not there": kit(classes(), b"3\n"),
    "a class of words": kit(classes(), b"one\n"),
    "a class of 5,000 digits": kit(classes(), b"9" * 5000),
    "no classes": kit(classes(), b""),
    "classes that are no text": kit(classes(), b"\xff\xfe"),
    "a bomb": gzip.compress(sized(META, 1 << 30) + bytes(1 << 20)),
    **{name: gzip.compress(blocks + plain(META, b"x") + END) for name, blocks in ADDED.items() if "size" in name},
}


def source(folder: Path, train: bytes, validation: bytes, devkit: bytes) -> Path:
    for name, content in ((TRAIN_TAR, train), (VALIDATION_TAR, validation), (DEVKIT_TAR, devkit)):
        (folder / name).write_bytes(content)
    return folder


def test_honest_archives_are_opened(tmp_path: Path) -> None:
    found = open_source(source(tmp_path, IMAGES, plain("v.JPEG", b"z") + END, kit(classes())))
    assert [place.read() for place in (*found.train, *found.validation)] == [b"x", b"y", b"z"]
    assert [place.label for place in (*found.train, *found.validation)] == [1, 2, 1]


@pytest.mark.parametrize("name", KITS)
def test_a_kit_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    assert str(tmp_path) in refusal(
        lambda: open_source(source(tmp_path, IMAGES, plain("v.JPEG", b"z") + END, KITS[name]))
    )


TARS: dict[str, bytes] = {
    **{name: blocks + END for name, blocks in ADDED.items() if name.startswith(("a symb", "a dev", "a spa", "a neg"))},
    **{name: blocks + END for name, blocks in ADDED.items() if "size" in name or "header" in name},
    "nothing": b"",
    "text": b"text" * 1000,
    "no end": plain("n01.tar", b""),
    "cut": IMAGES[:700],
    "an inner one beyond the outer": plain("n01.tar", sized("a.JPEG", 1 << 20) + END) + END,
    "an inner one without an end": plain("n01.tar", plain("a.JPEG", b"x")) + END,
    "an inner one that is noise": plain("n01.tar", b"noise" * 300) + END,
    "a negative inner one": plain("n01.tar", sized("a.JPEG", -512) + END) + END,
    "an inner header": plain("n01.tar", extended(record("size", "-1")) + END) + END,
}


@pytest.mark.parametrize("name", TARS)
def test_archives_of_images_that_are_none_are_refused(name: str, tmp_path: Path) -> None:
    which = "train" if "inner" in name else "validation"
    parts = {"train": IMAGES, "validation": plain("v.JPEG", b"z") + END, which: TARS[name]}
    assert str(tmp_path) in refusal(
        lambda: open_source(source(tmp_path, parts["train"], parts["validation"], kit(classes())))
    )


@settings(max_examples=examples(40))
@given(st.data())
def test_archives_with_any_damage(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("archives")
    train = bytearray(IMAGES)
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(train) - 1))
        new = data.draw(st.binary(min_size=1, max_size=12))
        train[start : start + len(new)] = new
    places: list[Place] = []
    with_kit = source(folder, bytes(train), END, gzip.compress(END))
    assert refusal(lambda: places.extend(open_source(with_kit).train))
    shutil.rmtree(folder)


def test_tar_reads_what_the_standard_library_writes(tmp_path: Path) -> None:
    """In all of its formats, with names that need extended headers."""
    from aiperf.untrusted.tar import tar_members

    names = ["a", "b" * 99, "c/" * 40 + "d" * 200, "ü" * 60]
    for number, form in enumerate((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)):
        file = tmp_path / str(number)
        with tarfile.open(file, "w", format=form) as archive:
            for name in names:
                member = tarfile.TarInfo(name)
                member.size = 3
                archive.addfile(member, io.BytesIO(b"abc"))
        with file.open("rb") as stream:
            assert [member.name for member in tar_members(stream, file.stat().st_size)] == names
