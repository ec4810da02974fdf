"""Encoded images from outside, decoded by Pillow."""

import struct
import warnings
from io import BytesIO

from PIL import Image

UNREADABLE = (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError)
"""Exceptions of Pillow for other bytes, damaged images, and any of over 179 million pixels."""


def decode_image(data: bytes, *formats: str) -> Image.Image:
    """Decode an image of one of these formats, by Pillow's names; all of its pixels are read.

    Warnings of libjpeg (bytes between its markers that mean nothing) are not errors, as in
    TensorFlow. Raises ValueError.
    """
    try:
        # Pillow warns of damaged metadata, which nothing here reads, without the image's name.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(BytesIO(data), formats=formats)
            image.load()
    except UNREADABLE:
        raise ValueError(f"cannot be decoded as {' or '.join(formats)}") from None
    return image
