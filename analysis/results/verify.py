"""Check of a whole run directory: everything damaged, missing or foreign, all at once."""

import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from aiperf.errors import RunDirectoryError
from aiperf.run_directory.checksums import is_broken
from aiperf.run_directory.manifest import read_manifest, version_note
from aiperf.run_directory.paths import RunPaths, belongs
from aiperf.untrusted.arrays import opened_arrays
from aiperf.untrusted.folders import family_of, files_below
from aiperf.untrusted.reading import json_object, read_outside, reason_of, shortened
from analysis.reading.run_data import RunData, read_run
from analysis.report.cluster.health import health_notices, health_part
from analysis.report.physics import DevicesAtWork

TEMPORARY = re.compile(r"(.*/)?\.[^/]+\.(tmp|part)")


def verify(paths: RunPaths, others: Collection[str] = ()) -> list[str]:
    """List the problems of a run, one line each. Raises RunDirectoryError if it is not a run.

    `others`: names of files that may be there in addition to the run's.
    """
    return _problems(paths, read_run(paths), others)


def examine(paths: RunPaths, others: Collection[str] = ()) -> tuple[list[str], list[str]]:
    """The problems of a run as `verify`, and its notes with those about the health of its nodes."""
    data = read_run(paths)
    return _problems(paths, data, others), [*notes_of(paths), *health_notices(health_part(DevicesAtWork(data)))]


def _problems(paths: RunPaths, data: RunData, others: Collection[str]) -> list[str]:
    return [
        *map(str, data.damages),
        *(f"{name}: ends in an unfinished line" for name in data.unfinished_lines),
        *(f"telemetry/{name}: {count} line(s) cannot be read" for name, count in data.telemetry.unreadable.items()),
        *data.meters.problems,
        *_sealed(paths),
        *_archives(paths),
        *_foreign(paths, others),
    ]


def notes_of(paths: RunPaths) -> list[str]:
    """Facts of an intact run that a referee should know. Raises RunDirectoryError."""
    note = version_note(read_manifest(paths))
    return [*([note] if note is not None else []), *_of_the_file_system(paths)]


def _of_the_file_system(paths: RunPaths) -> Iterator[str]:
    """A line for each kind of file that the file system has made, with the first of them."""
    found: dict[str, list[str]] = {}
    for name in sorted(files_below(paths.root, file_systems_own=True)):
        if (family := family_of(name.rpartition("/")[2])) is not None:
            found.setdefault(family, []).append(name)
    for family, names in found.items():
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        yield f"{shortened(names[0])}{more}: {family}; no part of the run, and no harm"


def _sealed(paths: RunPaths) -> Iterator[str]:
    """Files that only a resumption needs, and that are not what was written."""
    for file in (*sorted(paths.candidates.glob("*.json")), *([paths.nni] if paths.nni.exists() else [])):
        if family_of(file.name) is not None:
            continue
        try:
            read_outside(file, _sealed_object)
        except RunDirectoryError as error:
            yield f"{_relative(paths, file)}: {str(error).removeprefix(f'{file}: ')}"


def _sealed_object(data: bytes) -> dict[str, object]:
    if is_broken(data):
        raise ValueError("its checksum does not fit: the file was changed or torn")
    return json_object(data)


def _archives(paths: RunPaths) -> Iterator[str]:
    for file in sorted(paths.models.glob("*/*.npz")):
        if family_of(file.name) is not None:
            continue
        try:
            with opened_arrays(file) as archive:
                for name in archive.files:
                    archive[name]
        except Exception as error:  # of any kind: NumPy and zipfile raise what they come across
            if not _is_simulated(file):
                yield f"{_relative(paths, file)}: cannot be read: {reason_of(error)}"


def _is_simulated(file: Path) -> bool:
    """The simulated trainer's checkpoints are lists of accuracies."""
    try:
        return isinstance(read_outside(file, json.loads), list)
    except RunDirectoryError:
        return False


def _foreign(paths: RunPaths, others: Collection[str]) -> Iterator[str]:
    for name in sorted(files_below(paths.root)):
        if TEMPORARY.fullmatch(name):
            yield f"{shortened(name)}: a temporary file left behind"
        elif not belongs(name) and name not in others:
            yield f"{shortened(name)}: does not belong to the run"


def _relative(paths: RunPaths, file: Path) -> str:
    return str(file.relative_to(paths.root))
