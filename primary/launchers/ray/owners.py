"""Owner of the Ray cluster that `ray.address = "auto"` finds: any user of this machine."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

DAEMON = "raylet"
"""Ray's process on every node, by which it finds the cluster of a machine."""


def others_cluster(file: Path | None = None) -> str | None:
    """A trace of another user's cluster, for a message; None if there is none.

    The owner of a cluster can run programs as the users who join it. Root is trusted.
    """
    return next(_traces(file or _latest_cluster()), None)


def _traces(file: Path) -> Iterator[str]:
    for process in psutil.process_iter():
        try:
            # As Ray looks for it: by the first word of the command line, which anyone may choose.
            is_daemon = any(DAEMON in Path(word).name for word in process.cmdline()[:1])
            if is_daemon and not _trusted(process.uids().real):
                yield f"process {process.pid} ({DAEMON}) of user {process.username()}"
        except psutil.Error:
            continue
    with contextlib.suppress(OSError):
        owner = file.lstat().st_uid
        if not _trusted(owner):
            yield f"{file}, which belongs to user {owner}"


def _trusted(user: int) -> bool:
    return user in (0, os.getuid())


def _latest_cluster() -> Path:
    """The file in which Ray keeps the address of the cluster that was started last."""
    return Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"
