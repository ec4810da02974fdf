"""Files that the last record of a run names with their hash: its nodes and their samples.

They are no records, and other processes may still append samples. So a record names the first bytes
of such a file, up to the last whole line, and what comes behind them does not matter.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from aiperf.files import read
from aiperf.run_directory.paths import RunPaths
from aiperf.storage.patience import with_patience

Beginning = tuple[str, int, str]
"""Name of a file in its run, number of its first bytes, and their SHA-256."""


def beginnings(paths: RunPaths) -> Iterator[Beginning]:
    """The beginnings of the files of a run that are there, of which each node may have one.

    Each is read when it is asked for. Raises OSError.
    """
    for name, file in _files(paths).items():
        # The description of the nodes is written whole; samples may come while this reads.
        yield _beginning(name, read(file) if file == paths.system else _whole_lines(file))


def changed_files(paths: RunPaths, recorded: Iterable[Beginning]) -> Iterator[tuple[str, str]]:
    """Recorded files that are not there, or begin in another way: name, and what is wrong."""
    own = _files(paths)
    for name, size, digest in recorded:
        # By the names that are there: those of a record could lead out of the run directory.
        if name not in own:
            yield name, "it is missing"
            continue
        try:
            found = _beginning(name, own[name].read_bytes()[:size])
        except OSError as error:
            yield name, f"it cannot be read: {error.strerror}"
            continue
        if found != (name, size, digest):
            yield name, f"its first {size} bytes are others"


def unnamed_files(paths: RunPaths, recorded: Iterable[Beginning]) -> list[str]:
    """The names of such files that are there and not recorded. Raises OSError."""
    return sorted(_files(paths).keys() - {name for name, _, _ in recorded})


def _files(paths: RunPaths) -> dict[str, Path]:
    described = with_patience(paths.system.is_file, paths.system)
    found = [*([paths.system] if described else []), *paths.telemetry_files()]
    return {str(file.relative_to(paths.root)): file for file in found}


def _whole_lines(file: Path) -> bytes:
    # Over NFS the end of a file that another node appends to may be seen as zeros at first.
    data = read(file).partition(b"\0")[0]
    return data[: data.rfind(b"\n") + 1]


def _beginning(name: str, data: bytes) -> Beginning:
    return name, len(data), hashlib.sha256(data).hexdigest()
