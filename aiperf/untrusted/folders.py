"""Folders from other people: walked without recursion, so that no depth can stop it."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

DEEPEST = 100
"""Folders inside each other that are looked into."""


FAMILIES: Mapping[str, re.Pattern[str]] = {
    "a file that was deleted while a process has it open, kept by NFS": re.compile(r"\.nfs[0-9a-f]{8,}", re.I),
    "a file that was deleted while a process has it open, kept by FUSE": re.compile(r"\.fuse_hidden[0-9a-f]{8,}", re.I),
    "a file that was deleted while a process has it open, kept by SMB": re.compile(r"\.(smb|cifs)[0-9a-f]{4,}", re.I),
    "a file that was deleted while a process has it open, kept by AFS": re.compile(r"\.(__)?afs[0-9a-f]+", re.I),
    "snapshots of the file system": re.compile(r"\.snapshots?|\.snap|\.zfs|~snapshot|#snapshot"),
    "a folder of the file system's own": re.compile(r"lost\+found|\.glusterfs|\.lustre|\.pvfs2|\.mmSharedTmpDir"),
    "a table of quotas": re.compile(r"a?quota\.(user|group|project)"),
    "a waste basket": re.compile(r"\.Trash(es|-\d+)?|\.trashcan|#recycle|\$RECYCLE\.BIN|Network Trash Folder"),
    "a mark of a union of file systems": re.compile(r"\.wh\..+|\.unionfs-fuse|\.unionfs"),
    "a note that macOS or Windows leaves": re.compile(
        r"\._.+|\.DS_Store|\.AppleDouble|\.AppleDB|\.apdisk|\.TemporaryItems|\.Spotlight-V100|\.fseventsd|"
        r"Thumbs\.db|desktop\.ini|System Volume Information"
    ),
    "an index of a network storage": re.compile(r"@eaDir|\.@__thumb"),
}
"""Names that file systems and their servers give to files and folders of their own."""


def family_of(name: str) -> str | None:
    """The file system's purpose of a file or folder, by its name; None if it is not its own."""
    return next((family for family, pattern in FAMILIES.items() if pattern.fullmatch(name)), None)


_OF_PROGRAMS = frozenset({"__MACOSX", "__pycache__", "ehthumbs.db", "Desktop.ini", "Icon\r"})
"""Names that programs give to what they leave in any folder."""


def is_technical(name: str) -> bool:
    """True for a file or folder that is there for a program's sake, as `.ipynb_checkpoints`."""
    return name.startswith(".") or name in _OF_PROGRAMS or family_of(name) is not None


def files_below(folder: Path, file_systems_own: bool = False) -> Iterator[str]:
    """The paths of all files below a folder, relative to it; links to folders are files.

    What the file system itself makes (`family_of`) is left out, or given without its content.
    Raises OSError if a folder cannot be read. Of one that is too deep only its own path is given.
    """
    waiting = [("", 0)]
    while waiting:
        inside, depth = waiting.pop()
        with os.scandir(folder / inside) as entries:
            for entry in entries:
                name = f"{inside}/{entry.name}" if inside else entry.name
                if family_of(entry.name) is not None:
                    if file_systems_own:
                        yield name
                elif entry.is_dir(follow_symlinks=False) and depth < DEEPEST:
                    waiting.append((name, depth + 1))
                else:
                    yield name
