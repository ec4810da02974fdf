"""Rows of files from other people: archives, Keras files, data sets, ImageNet."""

import functools
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from aiperf.config.dataset_manifest import MANIFEST_NAME, read_dataset_manifest, read_index
from analysis.results.source import read_result
from analysis.results.submission_package import write_archive
from tests.hardening.archives import hostile
from tests.hardening.corpus.case import Case, changed, complaint, variants
from tests.hardening.readers import test_data_sets as data
from tests.support.hand_made import HandMadeRun
from workloads.datasets.check import check
from workloads.datasets.prepare import JOURNAL_NAME, prepare
from workloads.datasets.sources import ImageSource, Place, open_source


@functools.cache
def honest_archive() -> bytes:
    """A package of a small run."""
    with tempfile.TemporaryDirectory() as name:
        run = HandMadeRun(Path(name) / "run").at(0).release(60).at(1).start_trial(1).at(30).epoch(1, 1)
        write_archive(run.support(60).end(60).paths, Path(name) / "run.tar.gz", {"name": "system"})
        return (Path(name) / "run.tar.gz").read_bytes()


def _archive(make: Callable[[], bytes], folder: Path) -> str:
    (folder / "what.tar.gz").write_bytes(make())
    return complaint(lambda: read_result(folder / "what.tar.gz"))


def archives() -> Iterator[Case]:
    """Packages with foreign members, damage, or too much in them."""

    def case(name: str, make: Callable[[], bytes]) -> Case:
        return Case(name, functools.partial(_archive, make))

    for name, blocks in hostile.ADDED.items():
        yield case(name, lambda b=blocks: hostile.with_members(honest_archive(), b))  # type: ignore[misc]
    yield case("everything twice", lambda: hostile.twice(honest_archive()))
    yield case("very many files", lambda: hostile.many_members(4000))
    for unit in (b"\n", b"\0", b"[", b"{}\n"):
        for name in ("run/telemetry/x.jsonl", "run/history/primary-1.jsonl", "run/SHA256SUMS", "run/run.json"):
            yield case(f"bomb of {unit!r} as {name}", lambda n=name, u=unit: hostile.bomb(n, 256, u))  # type: ignore[misc]
    for number in range(4):
        for name, content in hostile.damaged(honest_archive(), number):
            yield case(f"{name} ({number})", lambda c=content: c)  # type: ignore[misc]


def keras() -> Iterator[Case]:
    """Models with code, bombs or damage."""
    from replica.trainer.model.model_files import load_keras_file
    from tests.hardening.readers import test_keras_files as models

    with tempfile.TemporaryDirectory() as name:
        honest = models.honest_files(Path(name))
    contents = {name: models.configured(honest, **layer) for name, layer in models.LAYERS.items()}
    contents |= models.hostile(honest) | dict(variants(models.packed(honest), 20))

    def read(content: bytes, folder: Path) -> str:
        (folder / "model.keras").write_bytes(content)
        return complaint(lambda: load_keras_file(folder / "model.keras"))

    for name, content in contents.items():
        yield Case(name, functools.partial(read, content))


def data_sets() -> Iterator[Case]:
    """Descriptions, indexes and journals."""
    good = json.dumps(data.GOOD).encode()
    for name, content in (data.DESCRIPTIONS | dict(variants(good, 30))).items():
        yield Case(f"description: {name}", functools.partial(_description, content))
    for name, content in (data.INDEXES | dict(variants(b"train/a.jpg\t1\ntrain/b.jpg\t2\n", 10))).items():
        yield Case(f"index: {name}", functools.partial(_index, content))
    for name, journal in data.JOURNALS.items():
        yield Case(f"journal: {name}", functools.partial(_journal, journal))


def _description(content: bytes, folder: Path) -> str:
    (folder / MANIFEST_NAME).write_bytes(content)
    found = complaint(lambda: read_dataset_manifest(folder))
    return found + complaint(lambda: check(folder, lambda *_: None, 1))


def _index(content: bytes, folder: Path) -> str:
    (folder / MANIFEST_NAME).write_text(json.dumps(data.GOOD))
    (folder / "train.index").write_bytes(content)
    return complaint(lambda: read_index(folder, read_dataset_manifest(folder), "train"))


def _journal(content: bytes | None, folder: Path) -> str:
    if content is None:
        (folder / JOURNAL_NAME).mkdir()
    else:
        (folder / JOURNAL_NAME).write_bytes(content)
    place = Place("a", 1, folder / "a.jpg")
    source = ImageSource("x", ("a", "b"), (place,), (place,))
    return complaint(lambda: prepare(source, folder, {"train": 1, "validation": 1}, 64, lambda *_: None, 1))


def imagenet() -> Iterator[Case]:
    """The published archives, and their kit with a MATLAB file."""
    validation = hostile.plain("v.JPEG", b"z") + hostile.END
    for name, kit in data.KITS.items():
        yield Case(f"kit: {name}", functools.partial(_imagenet, data.IMAGES, validation, kit))
    for name, content in data.TARS.items():
        inner = "inner" in name
        parts = (content, validation) if inner else (data.IMAGES, content)
        yield Case(f"images: {name}", functools.partial(_imagenet, *parts, data.kit(data.classes())))
    for number in range(12):
        damaged = changed(data.IMAGES, random.Random(number))
        yield Case(f"images: change {number}", functools.partial(_imagenet, damaged, validation, data.kit(b"")))


def _imagenet(train: bytes, validation: bytes, kit: bytes, folder: Path) -> str:
    data.source(folder, train, validation, kit)
    try:
        return complaint(lambda: open_source(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
