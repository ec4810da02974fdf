"""Errors of storage in words: the file, the reason, and what to do."""

import errno
import os
import shlex
from pathlib import Path

from aiperf.host import free_disk

MIB = 1 << 20

REMEDIES = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there, or ask for a larger quota",
    errno.EROFS: "have it mounted for writing",
    errno.EACCES: "see who may write there, and whether a ticket has expired",
    errno.EPERM: "see who may write there, and whether a ticket has expired",
}


def why_not_written(path: Path, error: OSError) -> str:
    """`PATH cannot be written: REASON; REMEDY`, with the free space if there is too little."""
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        reason += _free(path)
    remedy = REMEDIES.get(error.errno or 0)
    return f"{path} cannot be written: {reason}{f'; {remedy}' if remedy else ''}"


def in_words(error: OSError) -> str:
    """`FILE: REASON` of an error of the file system, and the command that shows why, if any."""
    if not isinstance(error.filename, str | bytes) or not error.strerror:
        return str(error)
    file = os.fsdecode(error.filename)
    commands = {errno.EACCES: f"namei -l {shlex.quote(file)}", errno.EPERM: f"namei -l {shlex.quote(file)}"}
    commands |= {errno.ENOSPC: f"df -h {shlex.quote(str(Path(file).parent))}", errno.EDQUOT: "quota -s"}
    why = f"; see why: {commands[error.errno]}" if error.errno in commands else ""
    return f"{file}: {error.strerror}{why}"


def _free(path: Path) -> str:
    # The path itself may not exist yet: then the folder that it would be in says how much is free.
    for folder in (path, *path.absolute().parents):
        try:
            return f" ({free_disk(folder) / MIB:.1f} MiB are free below {folder})"
        except OSError:
            continue
    return ""
