"""A Keras model from any file that describes one: an architecture as JSON, or a .keras file."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import keras

from aiperf.errors import UsageError
from aiperf.network.json_files import read_architecture
from aiperf.outside.reading import MIB, Limits, json_object, parse_outside, reason_of
from replica.trainer.model.builder import build_model

KERAS_SUFFIX = ".keras"

MEMBERS = ("config.json", "metadata.json", "model.weights.h5")

CONFIG_LIMITS = Limits(size=64 * MIB, depth=200)
"""Of the description of the layers."""

MOST_BYTES, MOST_RATIO = 64 << 30, 100
"""Unpacked bytes of a file in it, in all and for each packed one. Keras does not pack them."""


def load_any(path: Path) -> Any:
    """Build an architecture file's model, or read a .keras file.

    Raises UsageError or ArchitectureError.
    """
    return load_keras_file(path) if path.suffix == KERAS_SUFFIX else build_model(read_architecture(path))


def load_keras_file(path: Path) -> Any:
    """Read a .keras file, refusing code in it, and content that is more than a network's.

    Raises UsageError.
    """
    try:
        _check_members(path)
        return keras.saving.load_model(path, compile=False, safe_mode=True)
    except Exception as error:  # of any kind: Keras raises what it comes across
        raise UsageError(f"{path}: cannot be read as a Keras model: {reason_of(error)}") from None


def _check_members(path: Path) -> None:
    """Raise ValueError for an archive that is not as Keras writes them, or is a bomb."""
    with zipfile.ZipFile(path) as archive:
        names = [member.filename for member in archive.infolist()]
        if sorted(names) != sorted(MEMBERS):
            raise ValueError(f"its files are {', '.join(names[:5])}; they must be {', '.join(MEMBERS)}")
        for member in archive.infolist():
            if member.file_size > min(MOST_BYTES, MOST_RATIO * max(member.compress_size, 1)):
                raise ValueError(f"{member.filename} would fill the memory: {member.file_size:,} bytes")
        config = archive.getinfo("config.json")
        if config.file_size > CONFIG_LIMITS.size:
            raise ValueError(f"config.json has {config.file_size:,} bytes")
        parse_outside(archive.read(config), "config.json", json_object, CONFIG_LIMITS, UsageError)
