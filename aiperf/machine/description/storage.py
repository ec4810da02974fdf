"""The file systems that a run works on: their types, servers and sizes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aiperf.host import disk_size, this_host
from aiperf.untrusted.text import cut

MOST_NAME = 200


def folders_of(run: Path, data: str | None) -> dict[str, Path]:
    """The folders of a run by their role, for `describe_storage`."""
    return {"run": run, **({"data": Path(data)} if data is not None else {})}


def describe_storage(folders: Mapping[str, Path]) -> dict[str, str | int | float | None]:
    """File system, its source (a server's, as in nfs1:/home) and bytes of each folder by role."""
    mounts = _mounts(this_host().root)
    found: dict[str, str | int | float | None] = {}
    for role, folder in folders.items():
        try:
            place, size = folder.resolve(), disk_size(folder)
        except (OSError, ValueError, RuntimeError):
            continue
        inside = [mount for mount in mounts if place.is_relative_to(mount)]
        if inside:
            kind, source = mounts[max(inside, key=lambda mount: len(mount.parts))]
            found |= {f"{role}_file_system": kind, f"{role}_file_system_source": cut(source, MOST_NAME)}
        found[f"{role}_file_system_bytes"] = size
    return found


def _mounts(root: Path) -> dict[Path, tuple[str, str]]:
    """Type and source by place (proc(5), mountinfo); of several at one place the last counts."""
    try:
        text = (root / "proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return {}
    found = {}
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        own, words = before.split(" "), after.split(" ")
        if separator and len(own) > 4 and len(words) > 1:
            found[Path(_plain(own[4]))] = (words[0], _plain(words[1]))
    return found


def _plain(name: str) -> str:
    """A name in which the kernel has written blanks and the like as octal numbers."""
    for code in ("\\040", "\\011", "\\012", "\\134"):
        name = name.replace(code, chr(int(code[1:], 8)))
    return name
