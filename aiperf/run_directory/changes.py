"""The files that change with a run, at a cheap look: as long as they are the same, what was read of
them holds.
"""

import contextlib

from aiperf.run_directory.paths import RunPaths

Seen = tuple[tuple[str, int, int], ...]
"""Of each file its name, its size in bytes, and when the file system last changed it, in ns."""


def look_at(paths: RunPaths) -> Seen:
    """The history list and the descriptions of run and nodes, without those that are not there.

    The time is that of any change, which no program can set: copies never look like originals.
    Raises OSError if the history list cannot be listed.
    """
    found = []
    for file in (*paths.history_files(), paths.run, paths.system):
        with contextlib.suppress(OSError):
            facts = file.stat()
            found.append((file.name, facts.st_size, facts.st_ctime_ns))
    return tuple(found)
