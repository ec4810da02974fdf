"""Writing and reading shards of TFRecords."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from aiperf.config.dataset_manifest import FileEntry
from aiperf.config.fingerprints import ENTRY_BYTES, image_entry
from replica.datasets.content import FileContent
from replica.datasets.naming import sha256_of


@dataclass(frozen=True, slots=True)
class Image:
    """One encoded RGB JPEG and its label, from 1."""

    name: str
    label: int
    encoded: bytes


def write_shard(path: Path, images: Iterable[Image]) -> FileContent:
    """Write one shard, whole or not at all. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    entries = bytearray()
    try:
        with tf.io.TFRecordWriter(str(part)) as writer:
            for image in images:
                writer.write(_example(image))
                entries += image_entry(image.encoded, image.label)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    count = len(entries) // ENTRY_BYTES
    entry = FileEntry(name=path.name, images=count, size_bytes=path.stat().st_size, sha256=sha256_of(path))
    return FileContent(entry, bytes(entries))


def read_shard(path: Path) -> Iterator[tuple[int, bytes]]:
    """Read label and encoded image of every record.

    Raises tensorflow.errors.DataLossError or InvalidArgumentError.
    """
    features = {
        "image/encoded": tf.io.FixedLenFeature((), tf.string),
        "image/class/label": tf.io.FixedLenFeature((), tf.int64),
    }
    for record in tf.data.TFRecordDataset(str(path)):
        example = tf.io.parse_single_example(record, features)
        yield int(example["image/class/label"]), example["image/encoded"].numpy()


def _example(image: Image) -> bytes:
    def text(value: bytes) -> tf.train.Feature:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    features = {
        "image/encoded": text(image.encoded),
        "image/format": text(b"JPEG"),
        "image/filename": text(image.name.encode(errors="backslashreplace")),
        "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[image.label])),
    }
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return bytes(example.SerializeToString())
