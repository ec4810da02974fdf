"""Names and checksums of shards."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from aiperf.config.dataset_manifest import Split

SHARD_PATTERN = re.compile(r"(train|validation)-(\d{5})-of-(\d{5})")

HASH_BLOCK_BYTES = 1 << 20


def shard_name(split: Split, number: int, count: int) -> str:
    """The usual name of a shard, such as train-00000-of-01024."""
    return f"{split}-{number:05d}-of-{count:05d}"


def sha256_of(path: Path) -> str:
    """Compute the checksum of a file. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(HASH_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
