"""Submission packages: raw records, report, system description and checksums in a .tar.gz.

Weights, checkpoints, candidates and logs are left out: the score does not depend on them.
"""

import gzip
import hashlib
import io
import json
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from aiperf.cli.lines import warn
from aiperf.errors import AiperfError, EnvironmentNotReadyError, RunDirectoryError
from aiperf.files import atomic_file
from aiperf.run_directory.paths import ENTRIES, RunPaths, open_run
from aiperf.untrusted.folders import family_of, files_below, is_technical
from aiperf.untrusted.reading import SMALL, json_object, parse_outside, read_bounded, reason_of, shortened
from aiperf.untrusted.tar import Member, Stream, tar_members
from aiperf.untrusted.text import is_printable

CHECKSUMS = "SHA256SUMS"
"""Checksums in sha256sum's format: `sha256sum -c SHA256SUMS` works in the unpacked folder."""

STATEMENT, SIGNATURE = "STATEMENT", "STATEMENT.sig"
"""The signed statement of a result (`analysis.results.signatures`), which names the checksums."""

SYSTEMS = "systems.json"
"""The system description with the fields of MLPerf's."""

BASE_BYTES, REPLICA_BYTES, MOST_BYTES = 4 * 2**30, 16 * 2**20, 128 * 2**30
"""Upper limits for the bytes of an unpacked package: base, addition per replica, and total.

12 hours of a replica with 8 accelerators, a sample each 30 s, take 6 MiB.
"""

MOST_RATIO = 100
"""Upper limit for unpacked bytes per packed byte. Records shrink to a tenth."""

LEAST_LIMIT = 1 << 20
"""Bytes that any package may have: a tar archive of nothing is blocks of zeros."""

MOST_MEMBERS = 250_000
MOST_NAME, MOST_FOLDERS = 255, 4
"""Upper limits for the files of a package, the characters of a name, and the folders on its way."""

OWN_FILES = frozenset({CHECKSUMS, STATEMENT, SIGNATURE, SYSTEMS})
"""Files that an archive has in addition to those of its run."""

MOST_CHECKSUMS = 64 * 2**20
"""Bytes of the list of checksums."""

COPIED_BYTES = 1 << 20
SHOWN_PROBLEMS = 5

PACKED_AT = 315_619_200
"""Time of all packed files, 1980-01-02: ZIP has no earlier year, in any time zone."""

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

    Raises EnvironmentNotReadyError if the archive cannot be written, or is too large to unpack.
    """
    name = target.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
    files, sums = list(_files(paths)), list[str]()
    most = most_bytes(paths.run.read_bytes())
    if (total := sum(file.stat().st_size + tarfile.BLOCKSIZE for file in files)) > most:
        raise EnvironmentNotReadyError([f"{paths.root}: {total:,} bytes; a package may have {most:,} unpacked"])
    try:
        with (
            atomic_file(target) as raw,
            # Without the time and the name that gzip adds: the same run gives the same bytes.
            gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for file in files:
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


def most_bytes(manifest: bytes) -> int:
    """Compute the most unpacked bytes of a package from its run.json: more replicas write more."""
    try:
        replicas = parse_outside(manifest, "run.json", json_object)["config"]["run"]["replicas"]
    except (AiperfError, LookupError, TypeError):
        replicas = 0
    return min(MOST_BYTES, BASE_BYTES + REPLICA_BYTES * replicas) if type(replicas) is int else BASE_BYTES


def _files(paths: RunPaths) -> Iterator[Path]:
    names = sorted(files_below(paths.root))
    for entry in ENTRIES:
        if entry.submitted:
            found = (paths.root / name for name in names if re.fullmatch(entry.name, name))
            yield from (file for file in found if file.is_file())


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    # Owner and group keep TarInfo's defaults: a package names no user of the machine.
    member.size, member.mode, member.mtime = len(content), 0o644, PACKED_AT
    archive.addfile(member, io.BytesIO(content))


def open_archive(archive: Path, folder: Path) -> Path:
    """Unpack a package into a folder, check every file, and return the run directory.

    Raises RunDirectoryError if it is not a package, is damaged, is larger than one may be, or holds
    more or fewer files than its checksums name.
    """
    try:
        _unpack(archive, folder)
    except (EOFError, zlib.error, OSError, ValueError) as error:
        raise RunDirectoryError(f"{archive} cannot be unpacked: {reason_of(error)}") from None
    # Packed again by `tar -C run .`, it has no folder of its own.
    roots = [folder] if (folder / CHECKSUMS).is_file() else list(folder.iterdir())
    if len(roots) != 1 or not (roots[0] / CHECKSUMS).is_file():
        raise RunDirectoryError(
            f"{archive} is not a submission package: it has no {CHECKSUMS}; make one with aiperf export"
        )
    problems = differences_to_checksums(roots[0])
    if problems:
        shown = problems[:SHOWN_PROBLEMS]
        more = [f"and {len(problems) - SHOWN_PROBLEMS} more"] if len(problems) > SHOWN_PROBLEMS else []
        raise RunDirectoryError(*(f"{archive}: {shortened(problem)}" for problem in [*shown, *more]))
    return open_run(roots[0]).root


def _unpack(archive: Path, folder: Path) -> None:
    # As a stream: what follows a refused member is never unpacked, nor is a gap between two.
    packed = max(LEAST_LIMIT, MOST_RATIO * archive.stat().st_size)
    # Read twice: only run.json says how many replicas there are, and so how large a package may be.
    limit = min(packed, most_bytes(_manifest(archive, min(packed, BASE_BYTES))))
    ignored: list[str] = []
    with gzip.open(archive) as unpacked:
        for number, member in enumerate(tar_members(unpacked, limit)):
            if number >= MOST_MEMBERS:
                raise RunDirectoryError(f"{archive} is not a submission package: it has too many files")
            if member.folder:
                continue
            # A name that leads out of the folder is not ignored but refused, whatever else it looks
            # like.
            if any(map(is_technical, PurePosixPath(member.name).parts)) and ".." not in member.name:
                ignored.append(member.name)
                continue
            _write(unpacked, member, folder, archive)
    if ignored:
        few = ", ".join(map(shortened, ignored[:SHOWN_PROBLEMS])) + (" ..." if len(ignored) > SHOWN_PROBLEMS else "")
        warn(f"note: {archive}: {len(ignored)} files of other programs are ignored: {few}")


def _manifest(archive: Path, limit: int) -> bytes:
    """The run.json of a package, which is its first file; empty if it is another one."""
    with gzip.open(archive) as unpacked:
        for member in tar_members(unpacked, limit):
            if not member.folder:
                if any(map(is_technical, PurePosixPath(member.name).parts)):
                    continue
                is_first = member.name.endswith("/run.json") and member.size <= SMALL.size
                return unpacked.read(member.size) if is_first else b""
    return b""


def _write(unpacked: Stream, member: Member, folder: Path, archive: Path) -> None:
    """Write a member, which must be of a run or seal its package, and come once."""
    name = PurePosixPath(member.name)
    inside = "/".join(name.parts[1:])
    if name.is_absolute() or ".." in name.parts or not (_is_packed(inside) or _is_packed(str(name))):
        raise RunDirectoryError(
            f"{archive} is not a submission package: {shortened(member.name)!r} is not a file of one"
        )
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    left = member.size
    # Exclusively: a second member of the same name is refused.
    with target.open("xb") as stream:
        while left:
            data = unpacked.read(min(left, COPIED_BYTES))
            if not data:
                raise EOFError("it ends before its end")
            stream.write(data)
            left -= len(data)


def _is_packed(name: str) -> bool:
    """True if `write_archive` may have packed a file of this name, relative to the run."""
    if name in OWN_FILES:
        return True
    known = any(entry.submitted and re.fullmatch(entry.name, name) for entry in ENTRIES)
    return known and is_printable(name) and len(name) <= MOST_NAME and name.count("/") <= MOST_FOLDERS


def differences_to_checksums(root: Path) -> list[str]:
    """Files of an unpacked package that are not as its checksums say. Raises OSError."""
    named = {}
    for line in read_bounded(root / CHECKSUMS, MOST_CHECKSUMS).decode(errors="replace").splitlines():
        digest, _, name = line.partition("  ")
        named[name] = digest
    found_below = files_below(root, file_systems_own=True)
    there = {name for name in found_below if name in named or family_of(name.rpartition("/")[2]) is None}
    there -= {CHECKSUMS, STATEMENT, SIGNATURE}
    problems = [f"{name} is missing" for name in sorted(named.keys() - there)]
    # Files without a checksum could be anyone's, added after the run was packed.
    problems += [f"{name} is not in {CHECKSUMS}" for name in sorted(there - named.keys())]
    for name in sorted(there & named.keys()):
        with (root / name).open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != named[name]:
            problems.append(f"{name} is not what {CHECKSUMS} says")
    return problems
