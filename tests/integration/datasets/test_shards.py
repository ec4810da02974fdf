"""Shards and images of data sets, read and written without TensorFlow, against TensorFlow."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from replica.trainer.data.portable.crops import decoded
from tests.support.hand_made import aiperf
from workloads.datasets.encoding import as_rgb_jpeg, encode_jpeg
from workloads.datasets.examine import examine_files
from workloads.datasets.shards import LENGTH, Image, checksum, read_shard, write_shard
from workloads.datasets.sources import Place


def picture(number: int) -> bytes:
    ramps = np.linspace(0, 255, 24)[:, None, None] * np.array([1, 0.5, number % 7 / 7])
    return encode_jpeg(np.repeat(ramps, 30, axis=1).astype(np.uint8), 90)


def test_what_libjpeg_only_warns_of_is_no_problem_and_a_cut_is(tmp_path: Path) -> None:
    """As TensorFlow's decoder has it."""
    whole = picture(3)
    odd, cut = whole[:-2] + bytes(7) + whole[-2:], whole[: len(whole) * 2 // 3]
    for name, data in (("odd", odd), ("cut", cut)):
        (tmp_path / name).write_bytes(data)
    findings = examine_files([Place(name, 1, tmp_path / name) for name in ("odd", "cut")])
    assert findings.problems == ("cut: cannot be decoded as JPEG",)
    wanted = tf.io.decode_jpeg(odd).numpy().astype(int)
    assert np.abs(decoded(odd) - wanted).mean() < 1
    for decode in (tf.io.decode_jpeg, decoded, as_rgb_jpeg):
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
            decode(cut)


def test_shards_are_those_of_tensorflow(tmp_path: Path) -> None:
    images = [Image(f"n\u00e4me {label}.JPEG", label, picture(label)) for label in (1, 127, 128, 70_000)]
    path = tmp_path / "shard"
    write_shard(path, images)
    assert list(read_shard(path)) == [(image.label, image.encoded) for image in images]
    for record, image in zip(tf.data.TFRecordDataset(str(path)), images, strict=True):
        features = tf.train.Example.FromString(record.numpy()).features.feature
        assert features["image/encoded"].bytes_list.value == [image.encoded]
        assert features["image/filename"].bytes_list.value == [image.name.encode()]
        assert features["image/format"].bytes_list.value == [b"JPEG"]
        assert features["image/class/label"].int64_list.value == [image.label]
    theirs = tmp_path / "theirs"
    with tf.io.TFRecordWriter(str(theirs)) as writer:
        for record in tf.data.TFRecordDataset(str(path)):
            writer.write(record.numpy())
    assert theirs.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-1], "ends within a record|not that of its checksum"),
        (lambda data: data[:6], "not that of its checksum"),
        (lambda data: data[:3] + b"\1" + data[4:], "length is not that of its checksum"),
        (lambda data: data[:99] + bytes([data[99] ^ 1]) + data[100:], "content is not that of its checksum"),
        (lambda data: data + LENGTH.pack(1 << 60) + checksum(LENGTH.pack(1 << 60)), "ends within a record"),
        (lambda _: b"".join([LENGTH.pack(2), checksum(LENGTH.pack(2)), b"ab", checksum(b"ab")]), "."),
    ],
)
def test_a_damaged_shard_is_an_error(change: Callable[[bytes], bytes], message: str, tmp_path: Path) -> None:
    path = tmp_path / "shard"
    write_shard(path, [Image("a", 1, picture(1))])
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=message):
        list(read_shard(path))


def test_data_sets_are_made_and_checked_where_no_framework_can_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tensorflow", "keras", "jax", "torch"):
        (tmp_path / "site" / name).mkdir(parents=True)
        (tmp_path / "site" / name / "__init__.py").write_text("raise ImportError('not here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    folder = tmp_path / "data"
    words = ("--train", "9", "--validation", "3", "--classes", "3", "--image-size", "32")
    for done in (aiperf("dataset", "synthesize", folder, *words), aiperf("dataset", "check", folder)):
        assert done.returncode == 0, done.stderr
