"""Conversion of images to RGB JPEG. ImageNet has a PNG and 22 CMYK images among its JPEGs."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from numpy.typing import NDArray
from PIL import Image

from aiperf.untrusted.images import decode_image

JPEG_QUALITY = 100
"""Quality of re-encoded images, of 100."""

FORMATS = ("JPEG", "PNG", "GIF", "BMP")
"""What is converted, by Pillow's names."""

_START_OF_IMAGE = b"\xff\xd8"
_FRAME_MARKERS = frozenset({0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF})


def as_rgb_jpeg(data: bytes) -> bytes:
    """Give the image itself if it is a JPEG with one or three components, else re-encode it.

    Raises ValueError if it cannot be decoded.
    """
    if jpeg_components(data) in (1, 3):
        decode_image(data, "JPEG")
        return data
    return _encode(decode_image(data, *FORMATS).convert("RGB"), JPEG_QUALITY)


def encode_jpeg(pixels: NDArray[Any], quality: int) -> bytes:
    """JPEG of uint8 (height, width, 3)."""
    return _encode(Image.fromarray(pixels), quality)


def _encode(image: Image.Image, quality: int) -> bytes:
    stream = BytesIO()
    # A comment of the original would be copied.
    image.save(stream, "JPEG", quality=quality, subsampling="4:2:0", comment=b"")
    return stream.getvalue()


def is_jpeg(data: bytes) -> bool:
    """True if it begins as a JPEG does."""
    return data.startswith(_START_OF_IMAGE)


def jpeg_components(data: bytes) -> int | None:
    """Colour components from the frame header (ITU T.81, B.2.2); None if it is not a JPEG."""
    if not is_jpeg(data):
        return None
    position = 2
    while position + 9 < len(data) and data[position] == 0xFF:
        marker = data[position + 1]
        if marker in _FRAME_MARKERS:
            return data[position + 9]
        position += 2 + int.from_bytes(data[position + 2 : position + 4])
    return None
