"""The identity of a run: the same for a run directory, its copies and its archives."""

from __future__ import annotations

import re

from aiperf.records.chain import hash_of
from aiperf.run_directory.paths import RunPaths

_RELEASED = b'"type":"run_released"'
_TIME = re.compile(rb'"time":"([^"]*)"')


def run_identity(paths: RunPaths) -> str:
    """The hash of the primary's last release record: it has t0 to the millisecond.

    A run that was never released is known by its `run.json`.
    """
    lines = []
    for file in sorted(paths.history.glob("primary*.jsonl")):
        with file.open("rb") as stream:
            lines += [line.rstrip(b"\n") for line in stream if _RELEASED in line]
    last = max(lines, key=_time, default=None)
    return hash_of(last if last is not None else paths.run.read_bytes())


def _time(line: bytes) -> bytes:
    found = _TIME.search(line)
    return found.group(1) if found else b""
