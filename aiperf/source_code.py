"""The identity of the program itself: its git revision, and a hash of its source."""

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from aiperf.answers import ask_and_wait

PACKAGES = (
    "aiperf",
    "search_space",
    "workloads",
    "replica",
    "slurm",
    "primary",
    "analysis",
    "referee",
    "dashboard",
    "rehearsal",
)

TIMEOUT_S = 5.0
"""Time limit for one call of git, which may wait for a network file system."""


@cache  # a process runs the code that it has loaded, whatever becomes of the files
def source_hash() -> str:
    """SHA-256 over the Python files of all packages, in order of their paths, as 64 hex digits.

    Each file adds its path from the package on, with slashes, its size in bytes, and its content.
    The same source has the same hash in a checkout and installed.
    """
    digest = hashlib.sha256()
    for name, file in sorted(_files()):
        content = file.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _files() -> Iterator[tuple[str, Path]]:
    for folder in _folders():
        for file in folder.rglob("*.py"):
            yield file.relative_to(folder.parent).as_posix(), file


def _folders() -> Iterator[Path]:
    """The folder of every package that is installed; none is imported."""
    for package in PACKAGES:
        spec = find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            yield Path(next(iter(spec.submodule_search_locations)))


@cache
def git_state() -> tuple[str | None, bool | None]:
    """The commit that the source was checked out from, and True if a package differs from it.

    Both are None outside git, and for source that is not part of the repository around it, such as
    an installation below a checkout of another program. New files that git does not ignore differ.
    """
    # An installation below another project's checkout is inside a repository, too, but not in its
    # index.
    if _git("ls-files", "--error-unmatch", str(Path(__file__).resolve())) is None:
        return None, None
    revision = _git("rev-parse", "HEAD")
    # Without the lock that `git status` takes to refresh the index: the checkout may be read-only,
    # or be used by a person at the same time.
    changes = _git("--no-optional-locks", "status", "--porcelain", "--", *map(str, _folders()))
    return revision or None, None if revision is None or changes is None else bool(changes)


def _git(*words: str) -> str | None:
    """Standard output of git; None if it fails or is not there."""
    command = ["git", "-C", str(Path(__file__).resolve().parent), *words]
    answer = ask_and_wait(command, TIMEOUT_S)
    return answer.output.strip() if answer.fine else None
