"""Names of files: of published data sets, and of new files in their manner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from aiperf.config.dataset_manifest import Split

Found = Mapping[Split, Sequence[str]]


def matching(folder: Path, patterns: Mapping[Split, Sequence[str]]) -> Found:
    """Find the files of a folder that match one of a split's glob patterns, in order."""
    return {
        split: sorted({str(path.relative_to(folder)) for pattern in patterns[split] for path in folder.glob(pattern)})
        for split in patterns
    }


def numbered(stem: str, suffix: str, samples: int, most: int) -> list[tuple[str, int]]:
    """Make names and sizes of files of at most `most` samples: `stem` alone if one is enough."""
    count = max(1, -(-samples // most))
    if count == 1:
        return [(f"{stem}{suffix}", samples)]
    digits = max(2, len(str(count - 1)))
    return [
        (f"{stem}-{number:0{digits}}{suffix}", samples * (number + 1) // count - samples * number // count)
        for number in range(count)
    ]
