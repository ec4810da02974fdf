"""A Keras model from any file that describes one: an architecture as JSON, or a .keras file."""

import json
import resource
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import psutil

from aiperf.errors import UsageError
from aiperf.network.json_files import read_architecture
from aiperf.untrusted.reading import MIB, Limits, parse_outside, reason_of
from replica.trainer.model.builder import build_model

KERAS_SUFFIX = ".keras"

MEMBERS = ("config.json", "metadata.json", "model.weights.h5")

CONFIG_LIMITS = Limits(size=64 * MIB, depth=200)
"""Limits of the description of the layers."""

MOST_NUMBER, OBJECT_ID = 10**10, "shared_object_id"
"""Largest whole number in the description, seeds included, but for the addresses of objects."""

SPARE_BYTES, COPIES = 8 << 30, 4
"""Bytes of address space for reading a model, and more of them for each byte of its weights."""

MOST_BYTES, MOST_RATIO = 64 << 30, 100
"""Most unpacked bytes of a member, in all and for each packed one. Keras does not pack members."""


def load_any(path: Path) -> Any:
    """Build an architecture file's model, or read a .keras file.

    Raises UsageError or ArchitectureError.
    """
    return load_keras_file(path) if path.suffix == KERAS_SUFFIX else build_model(read_architecture(path))


def load_keras_file(path: Path) -> Any:
    """Read a .keras file; refuse code in it, and sizes that no network has.

    Raises UsageError.
    """
    try:
        weights_bytes = _check_members(path)
        with _memory(SPARE_BYTES + COPIES * weights_bytes):
            return keras.saving.load_model(path, compile=False, safe_mode=True)
    except Exception as error:  # of any kind: Keras raises what it comes across
        raise UsageError(f"{path}: cannot be read as a Keras model: {reason_of(error)}") from None


@contextmanager
def _memory(more: int) -> Iterator[None]:
    """Run a block in which this process may take this many bytes more.

    A few words of a description can make a layer of any size.
    """
    before = resource.getrlimit(resource.RLIMIT_AS)
    limit = psutil.Process().memory_info().vms + more
    if before[0] == resource.RLIM_INFINITY or limit < before[0]:
        # The soft limit alone: a lower hard one could not be raised again.
        resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _check_members(path: Path) -> int:
    """Check the archive; give its weights' bytes. Raises ValueError if it is not Keras's."""
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
        # Before Keras sees the file: it builds layers, and so takes memory, as it reads.
        parse_outside(archive.read(config), "config.json", _check_numbers, CONFIG_LIMITS, UsageError)
        return archive.getinfo("model.weights.h5").file_size


def _check_numbers(configuration: bytes) -> None:
    """Raise ValueError for a number that no layer has."""

    def check(found: dict[str, Any]) -> dict[str, Any]:
        for key, value in found.items():
            for number in value if isinstance(value, list) else [value]:
                if isinstance(number, int) and abs(number) > MOST_NUMBER and key != OBJECT_ID:
                    raise ValueError(f"{key} is {number}")
        return found

    if not isinstance(json.loads(configuration, object_hook=check), dict):
        raise ValueError("it is not a JSON object")
