"""Conversion of images to RGB JPEG. ImageNet has a PNG and 22 CMYK images among its JPEGs."""

import warnings
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from aiperf.untrusted.images import decode_image
from aiperf.untrusted.recognition import HEAD_BYTES, described

JPEG_QUALITY = 100
"""Quality of re-encoded images, of 100."""

FORMATS = ("JPEG", "PNG", "GIF", "BMP")
"""Formats that are converted, by Pillow's names."""

_START_OF_IMAGE = b"\xff\xd8"
_FRAME_MARKERS = frozenset({0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF})
_WITHOUT_CONTENT = frozenset({0x01, *range(0xD0, 0xD9)})


def as_rgb_jpeg(data: bytes) -> bytes:
    """Give the image itself if it is a JPEG with one or three components, else re-encode it.

    Raises ValueError saying what it is if it cannot be decoded.
    """
    # Decoded even if it is kept: a damaged image must be found here, not in a training.
    if jpeg_components(data) in (1, 3):
        _decoded(data, "JPEG")
        return data
    return _encode(_as_rgb(_decoded(data, *FORMATS)), JPEG_QUALITY)


def kind_of(data: bytes) -> str:
    """Describe an image that `as_rgb_jpeg` re-encodes, with its losses: "PNG, 16 bits"."""
    with warnings.catch_warnings():  # of damaged metadata, as when it is decoded
        warnings.simplefilter("ignore")
        image = Image.open(BytesIO(data), formats=FORMATS)
    words = [image.format or ""]
    if image.format == "JPEG":
        components = jpeg_components(data)
        words.append("CMYK" if components == 4 else f"{components} components")
    if image.mode[0] in "IF" or (image.format == "PNG" and data[24] > 8):  # IHDR's bit depth
        words.append("16 bits")
    if "A" in image.mode or "transparency" in image.info:
        words.append("transparency dropped")
    if getattr(image, "n_frames", 1) > 1:
        words.append("first frame")
    return ", ".join(words)


def _decoded(data: bytes, *formats: str) -> Image.Image:
    try:
        return decode_image(data, *formats)
    except ValueError:
        found = described(data[:HEAD_BYTES])
        convertible = found.endswith(tuple(f"{name} image" for name in FORMATS))
        raise ValueError(f"is {found} that cannot be decoded" if convertible else f"is {found}") from None


def _as_rgb(image: Image.Image) -> Image.Image:
    if image.mode[0] == "I":
        # Pillow would clip 16 bits to 255, which makes a white image: the upper 8 bits are kept.
        return Image.fromarray((np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.format == "JPEG" and image.mode == "CMYK" and "adobe" not in image.info:
        # Adobe's files hold the inverse of the inks, and Pillow takes all files for Adobe's.
        image = Image.fromarray(255 - np.asarray(image), "CMYK")
    return image.convert("RGB")


def encode_jpeg(pixels: NDArray[Any], quality: int) -> bytes:
    """Encode uint8 pixels (height, width, 3) as JPEG."""
    return _encode(Image.fromarray(pixels), quality)


def _encode(image: Image.Image, quality: int) -> bytes:
    stream = BytesIO()
    # Without an empty one, Pillow would copy the original's comment.
    image.save(stream, "JPEG", quality=quality, subsampling="4:2:0", comment=b"")
    return stream.getvalue()


def is_jpeg(data: bytes) -> bool:
    """True for bytes that begin as a JPEG does."""
    return data.startswith(_START_OF_IMAGE)


def jpeg_components(data: bytes) -> int | None:
    """The number of colour components in the frame header (ITU T.81, B.2.2); None for other files.

    As in libjpeg, fill bytes may stand before a marker (B.1.1.2), and other bytes are passed over.
    """
    if not is_jpeg(data):
        return None
    position = 2
    while True:
        position = data.find(b"\xff", position)
        if position < 0:
            return None
        while position < len(data) and data[position] == 0xFF:
            position += 1
        if position + 8 >= len(data):
            return None
        marker = data[position]
        if marker in _FRAME_MARKERS:
            return data[position + 8]
        position += 1
        if marker and marker not in _WITHOUT_CONTENT:
            position += max(2, int.from_bytes(data[position : position + 2]))
