"""Submission packages: raw records, report, system description and checksums in a .tar.gz.

Weights, checkpoints, candidates and logs are left out: the score does not depend on them.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from aiperf.errors import EnvironmentNotReadyError, RunDirectoryError
from aiperf.files import atomic_file
from aiperf.run_directory.paths import ENTRIES, RunPaths, open_run

CHECKSUMS = "SHA256SUMS"
"""In the format of sha256sum: `sha256sum -c SHA256SUMS` works in the unpacked folder."""

SYSTEMS = "systems.json"
"""The system description with the fields of MLPerf's."""

MOST_BYTES = 64 * 2**30
MOST_MEMBERS = 2_000_000
"""Limits of a package, so that checking one cannot fill the disk."""

GZIP_MAGIC = b"\x1f\x8b"


def is_archive(path: Path) -> bool:
    """True if the path is a file that gzip wrote."""
    try:
        with path.open("rb") as stream:
            return stream.read(2) == GZIP_MAGIC
    except OSError:
        return False


def write_archive(paths: RunPaths, target: Path, system: dict[str, object]) -> int:
    """Pack a run with its report; return the number of files. The same run gives the same bytes.

    Raises EnvironmentNotReadyError if the archive cannot be written.
    """
    name = target.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
    sums: list[str] = []
    try:
        with (
            atomic_file(target) as raw,
            gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for file in _files(paths):
                inside = str(file.relative_to(paths.root))
                content = file.read_bytes()
                _add(archive, f"{name}/{inside}", content)
                sums.append(f"{hashlib.sha256(content).hexdigest()}  {inside}\n")
            content = json.dumps(system, indent=2).encode() + b"\n"
            _add(archive, f"{name}/{SYSTEMS}", content)
            sums.append(f"{hashlib.sha256(content).hexdigest()}  {SYSTEMS}\n")
            _add(archive, f"{name}/{CHECKSUMS}", "".join(sums).encode())
    except OSError as error:
        raise EnvironmentNotReadyError([f"{target} cannot be written: {error}"]) from error
    return len(sums)


def _files(paths: RunPaths) -> Iterator[Path]:
    for entry in ENTRIES:
        if entry.submitted:
            yield from (file for file in sorted(paths.root.glob(entry.glob)) if file.is_file())


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), 0o644
    archive.addfile(member, io.BytesIO(content))


def open_archive(archive: Path, folder: Path) -> Path:
    """Unpack a package into a folder, check every file, and return the run directory.

    Raises RunDirectoryError if it is not a package, is damaged, or holds more or fewer files than
    its checksums name.
    """
    try:
        with tarfile.open(archive, "r:gz") as opened:
            _unpack(opened, folder, archive)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise RunDirectoryError(f"{archive} cannot be unpacked: {error}") from None
    roots = list(folder.iterdir())
    if len(roots) != 1 or not (roots[0] / CHECKSUMS).is_file():
        raise RunDirectoryError(
            f"{archive} is not a submission package: it has no {CHECKSUMS}; make one with aiperf export"
        )
    problems = _differences(roots[0])
    if problems:
        raise RunDirectoryError("\n".join(f"{archive}: {problem}" for problem in problems))
    return open_run(roots[0]).root


def _unpack(opened: tarfile.TarFile, folder: Path, archive: Path) -> None:
    total = 0
    for number, member in enumerate(opened):
        total += member.size
        if total > MOST_BYTES or number >= MOST_MEMBERS:
            raise RunDirectoryError(f"{archive} is not a submission package: it would fill the disk")
        opened.extract(member, folder, filter="data")


def _differences(root: Path) -> list[str]:
    named = {}
    for line in (root / CHECKSUMS).read_text(encoding="utf-8", errors="replace").splitlines():
        digest, _, name = line.partition("  ")
        named[name] = digest
    there = {str(file.relative_to(root)) for file in root.rglob("*") if file.is_file()} - {CHECKSUMS}
    problems = [f"{name} is missing" for name in sorted(named.keys() - there)]
    problems += [f"{name} is not in {CHECKSUMS}" for name in sorted(there - named.keys())]
    for name in sorted(there & named.keys()):
        if hashlib.sha256((root / name).read_bytes()).hexdigest() != named[name]:
            problems.append(f"{name} is not what {CHECKSUMS} says")
    return problems
