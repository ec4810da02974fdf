"""CosmoFlow's TFRecords, read without TensorFlow."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from aiperf.errors import DatasetError, UsageError
from tests.support.trainings.science import GRIDS, rows_of
from workloads.data.formats import FORMATS, FileLayout


def record(**features: bytes) -> bytes:
    """A TFRecord of one example, by hand: checksums are not read."""

    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2]) + varint(len(content)) + content

    def varint(value: int) -> bytes:
        return bytes([value & 0x7F | 0x80]) + varint(value >> 7) if value > 0x7F else bytes([value])

    kinds = {"x": 1, "y": 2}
    entries = [
        field(1, field(1, name.encode()) + field(2, field(kinds.get(name, 1), field(1, value))))
        for name, value in features.items()
    ]
    example = field(1, b"".join(entries))
    return struct.pack("<Q4x", len(example)) + example + bytes(4)


def test_cosmoflows_records_are_read_without_tensorflow(tmp_path: Path) -> None:
    import tensorflow as tf

    (inputs,), (targets,) = rows_of("cosmoflow", 1)
    example = tf.train.Example(
        features=tf.train.Features(
            feature={
                "x": tf.train.Feature(bytes_list=tf.train.BytesList(value=[inputs.tobytes()])),
                "y": tf.train.Feature(float_list=tf.train.FloatList(value=targets)),
            }
        )
    )
    form = FORMATS.load("cosmoflow-tfrecord")
    for kind in ("GZIP", ""):
        path = tmp_path / f"{kind}.tfrecord"
        with tf.io.TFRecordWriter(str(path), kind) as writer:
            writer.write(example.SerializeToString())
        opened = form.open(path)
        assert opened.layout == FileLayout(1, GRIDS["cosmoflow"])
        found = opened.read(0, 1)
        np.testing.assert_array_equal(found[0][0], inputs)
        np.testing.assert_array_equal(found[1][0], targets)
        assert list(opened.problems(0, found)) == []
    path.write_bytes(record(x=inputs.tobytes(), y=targets.tobytes()))
    np.testing.assert_array_equal(form.open(path).read(0, 1)[0][0], inputs)


CUBE, PARAMETERS = np.zeros((2, 2, 2, 4), np.int16).tobytes(), np.zeros(4, np.float32).tobytes()
RECORDS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "shorter than a record"),
    "two records": (2 * record(x=CUBE, y=PARAMETERS), "is not one record"),
    "a cut one": (record(x=CUBE, y=PARAMETERS)[:-9], "is not one record"),
    "no cube": (record(x=CUBE[:-2], y=PARAMETERS), "not a cube of 4 channels"),
    "half a value": (record(x=CUBE[:-1], y=PARAMETERS), "is damaged|multiple"),
    "three parameters": (record(x=CUBE, y=PARAMETERS[:12]), "y does not have 4 values"),
    "no parameters": (record(x=CUBE), "lacks y"),
    "neither": (record(z=b""), "lacks x and y"),
    "noise": (struct.pack("<Q4x", 9) + b"\xff" * 9 + bytes(4), "ends within|other fields"),
    "damaged gzip": (gzip.compress(record(x=CUBE, y=PARAMETERS))[:40] + b"\xff" * 20, "its gzip"),
    "cut gzip": (gzip.compress(record(x=CUBE, y=PARAMETERS))[:-9], "its gzip ends early"),
    "a bomb": (gzip.compress(bytes(300 << 20), 1), "or is too large"),
}


@pytest.mark.parametrize("kind", RECORDS)
def test_records_that_are_none_are_refused(kind: str, tmp_path: Path) -> None:
    content, message = RECORDS[kind]
    (tmp_path / "x.tfrecord").write_bytes(content)
    with pytest.raises(DatasetError, match=rf"x\.tfrecord: .*({message})"):
        FORMATS.load("cosmoflow-tfrecord").open(tmp_path / "x.tfrecord")


def test_new_files_are_not_records(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="TFRecords are read, not written"):
        FORMATS.load("cosmoflow-tfrecord").write(tmp_path / "x", FileLayout(1, (2, 2, 2)), [])
