"""Images out of TFRecords without a framework: one reading of each record, or none."""

import pytest

from workloads.data.records import parse_example


def field(number: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def feature(name: str, value: bytes) -> bytes:
    return field(1, field(1, name.encode()) + field(2, value))


IMAGE = feature("image/encoded", field(1, field(1, b"pixels")))
LABEL = feature("image/class/label", field(3, field(1, bytes([0xE8, 0x07]))))
OTHER = feature("image/object/bbox", field(2, field(1, bytes(8))))


def test_label_and_image_of_a_record_in_any_order() -> None:
    for features in (IMAGE + LABEL, LABEL + OTHER + IMAGE):
        assert parse_example(field(1, features)) == (1000, b"pixels")
    unpacked = feature("image/class/label", field(3, bytes([1 << 3, 0xE8, 0x07])))
    assert parse_example(field(1, IMAGE + unpacked)) == (1000, b"pixels")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (field(1, IMAGE + LABEL + IMAGE), "image/encoded twice"),
        (field(1, IMAGE + LABEL) + field(1, IMAGE), "other fields"),
        (field(1, IMAGE + feature("image/class/label", field(3, field(1, b"\1\2")))), "more than one"),
        (field(1, LABEL + feature("image/encoded", field(1, field(1, b"a") + field(1, b"b")))), "holds 2 texts"),
        (
            field(1, LABEL + feature("image/encoded", field(1, field(1, b"a")) + field(3, b"\0"))),
            "bytes and whole numbers",
        ),
        (field(1, LABEL), "lacks feature image/encoded"),
        (field(1, IMAGE + LABEL)[:-3], "ends within a field"),
        (b"\xff" * 20, "ends within a number"),
    ],
)
def test_a_record_that_can_be_read_in_two_ways_is_refused(record: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_example(record)
