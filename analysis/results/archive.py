"""Submission packages: raw records, report, system description and checksums in a .tar.gz.

Weights, checkpoints, candidates and logs are left out: the score does not depend on them.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from aiperf.errors import EnvironmentNotReadyError, RunDirectoryError
from aiperf.files import atomic_file
from aiperf.run_directory.paths import ENTRIES, RunPaths, open_run

CHECKSUMS = "SHA256SUMS"
"""In the format of sha256sum: `sha256sum -c SHA256SUMS` works in the unpacked folder."""

STATEMENT, SIGNATURE = "STATEMENT", "STATEMENT.sig"
"""The signed statement of a result (`analysis.results.signatures`), which names the checksums."""

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


Seal = Callable[[bytes], Mapping[str, bytes]]
"""Gives the last files of an archive from the content of its `SHA256SUMS`, which cannot name them.
"""


def unsealed(checksums: bytes) -> Mapping[str, bytes]:
    """The seal of an archive that is not signed: without further files."""
    return {}


def write_archive(paths: RunPaths, target: Path, system: dict[str, object], seal: Seal = unsealed) -> int:
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
            checksums = "".join(sums).encode()
            _add(archive, f"{name}/{CHECKSUMS}", checksums)
            for inside, content in seal(checksums).items():
                _add(archive, f"{name}/{inside}", content)
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
    except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError) as error:
        raise RunDirectoryError(f"{archive} cannot be unpacked: {error}") from None
    roots = list(folder.iterdir())
    if len(roots) != 1 or not (roots[0] / CHECKSUMS).is_file():
        raise RunDirectoryError(
            f"{archive} is not a submission package: it has no {CHECKSUMS}; make one with aiperf export"
        )
    problems = differences_to_checksums(roots[0])
    if problems:
        raise RunDirectoryError(*(f"{archive}: {problem}" for problem in problems))
    return open_run(roots[0]).root


def _unpack(opened: tarfile.TarFile, folder: Path, archive: Path) -> None:
    total = 0
    for number, member in enumerate(opened):
        total += member.size
        if total > MOST_BYTES or number >= MOST_MEMBERS:
            raise RunDirectoryError(f"{archive} is not a submission package: it would fill the disk")
        if not member.isdir():
            _write(opened, member, folder, archive)


def _write(opened: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, archive: Path) -> None:
    """Write a member, which must be a plain file inside the folder and come once.

    Not by `extract`: before Python 3.11.4 it knows no filter, and links are not needed.
    """
    name = PurePosixPath(member.name)
    source = opened.extractfile(member) if member.isreg() else None
    if source is None or name.is_absolute() or ".." in name.parts:
        raise RunDirectoryError(f"{archive} is not a submission package: {member.name!r} is not a plain file in it")
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with source, target.open("xb") as stream:
        shutil.copyfileobj(source, stream)


def differences_to_checksums(root: Path) -> list[str]:
    """Files of an unpacked package that are not as its checksums say. Raises OSError."""
    named = {}
    for line in (root / CHECKSUMS).read_text(encoding="utf-8", errors="replace").splitlines():
        digest, _, name = line.partition("  ")
        named[name] = digest
    there = {str(file.relative_to(root)) for file in root.rglob("*") if file.is_file()}
    there -= {CHECKSUMS, STATEMENT, SIGNATURE}
    problems = [f"{name} is missing" for name in sorted(named.keys() - there)]
    problems += [f"{name} is not in {CHECKSUMS}" for name in sorted(there - named.keys())]
    for name in sorted(there & named.keys()):
        if hashlib.sha256((root / name).read_bytes()).hexdigest() != named[name]:
            problems.append(f"{name} is not what {CHECKSUMS} says")
    return problems
