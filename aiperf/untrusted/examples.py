"""Records of TFRecord files and the `tf.train.Example` in them, without TensorFlow.

A record is its length (8 bytes, little-endian), 4 bytes of checksum, the content, and 4 bytes of
checksum (tensorflow/core/lib/io/record_writer.h). The content is a `tf.train.Example`
(tensorflow/core/example/example.proto) in the encoding of protocol buffers
(https://protobuf.dev/programming-guides/encoding). All functions raise ValueError for other bytes.
"""

import struct

HEADER = struct.Struct("<Q4x")
FOOTER_BYTES = 4

Field = tuple[int, int | memoryview]
"""Number and value of a field: a whole number, or bytes."""

_VARINT, _LENGTH = 0, 2
_FIXED_BYTES = {1: 8, 5: 4}


def features_of(record: memoryview) -> dict[str, memoryview]:
    """The features of an example by name.

    Everything must be there exactly once: readers could differ in which of two they take.
    """
    features: dict[str, memoryview] = {}
    for _, entry in fields(only(record, 1)):
        parts = fields(entry) if isinstance(entry, memoryview) else []
        if [number for number, _ in parts] != [1, 2]:
            raise ValueError("has a feature that is not a name and a value")
        name, value = (part if isinstance(part, memoryview) else memoryview(b"") for _, part in parts)
        text = bytes(name[:100]).decode(errors="replace")
        if text in features:
            raise ValueError(f"has feature {text} twice")
        features[text] = value
    return features


def only(message: memoryview, number: int) -> memoryview:
    """The content of a message that has but one field, of this number."""
    found = fields(message)
    if len(found) == 1 and found[0][0] == number and isinstance(found[0][1], memoryview):
        return found[0][1]
    raise ValueError(f"has other fields than one of number {number}")


def fields(message: memoryview) -> list[Field]:
    """Number and value of each field."""
    found: list[Field] = []
    position = 0
    while position < len(message):
        tag, position = varint(message, position)
        kind = tag & 7
        if kind == _VARINT:
            value, position = varint(message, position)
            found.append((tag >> 3, value))
            continue
        if kind == _LENGTH:
            length, position = varint(message, position)
        elif kind in _FIXED_BYTES:
            length = _FIXED_BYTES[kind]
        else:
            raise ValueError(f"has a field of unknown type {kind}")
        if position + length > len(message):
            raise ValueError("ends within a field")
        found.append((tag >> 3, message[position : position + length]))
        position += length
    return found


def varint(message: memoryview, position: int) -> tuple[int, int]:
    """A whole number at a position, and the position behind it."""
    value = shift = 0
    # A number of 64 bits takes at most ten bytes of seven bits each.
    while position < len(message) and shift < 70:
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
    raise ValueError("ends within a number")
