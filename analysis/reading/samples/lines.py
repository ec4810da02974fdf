"""The samples of a telemetry file, line by line if anything in it is strange."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from aiperf.clock import parse_utc
from aiperf.run_directory.checksums import is_broken, is_sealed
from aiperf.untrusted.reading import shortened
from analysis.reading.samples.columns import (
    MJ_PER_J,
    PLAIN,
    Series,
    are_sealed_alike,
    mean_of,
    sum_of,
    usual_row,
    usual_sample,
    usual_samples,
)

FileSamples = tuple[str, list[tuple[int, str]], str, Series, int]
"""Name of the file, the writers by the first sample of each, host, samples at the times of their
writers' clocks, and the number of lines that could not be read.
"""

MOST_LINE_BYTES = 1 << 20
"""A longer line is read as several, none of which is a sample."""

MOST_UNREADABLE = 1000
"""Lines of a file that are not samples, after which the rest of it is not read."""


MOST_BYTES = 1 << 26
"""Of a file that is looked at as a whole."""


def read_samples(file: Path) -> FileSamples:
    """The samples of a file, which may be damaged in any way."""
    return _usual(file) or read_lines(file)


def _usual(file: Path) -> FileSamples | None:
    """The samples of a file that is as one sampler leaves it."""
    try:
        with file.open("rb") as stream:
            data = stream.read(MOST_BYTES)
    except OSError:
        return None
    head, *lines = data.split(b"\n")
    if len(data) == MOST_BYTES or not lines or lines.pop() or max(map(len, lines), default=0) >= MOST_LINE_BYTES:
        return None
    document = _document(head) if are_sealed_alike(head, lines) else None
    if not isinstance(document, dict) or not {"version", "writer", "host"} <= document.keys():
        return None
    samples = usual_samples(data[len(head) + 1 :], len(lines))
    if samples is None:
        return None
    return file.name, [(0, str(document["writer"]))], shortened(str(document["host"])), samples, 0


def read_lines(file: Path) -> FileSamples:
    """The same of any file, line by line."""
    writers, host, bad = list[tuple[int, str]](), "?", 0
    rows: list[list[float]] = []
    for line in _lines(file):
        if bad > MOST_UNREADABLE:
            break
        try:
            if line is None:
                bad += 1
            elif (sample := usual_sample(line)) is not None:
                rows.append(usual_row(sample))
            elif not isinstance(document := _document(line), dict):
                bad += 1
            elif "version" in document:
                writer, host = str(document["writer"]), shortened(str(document["host"]))
                writers.append((len(rows), writer))
            else:
                rows.append(_row(document))
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
            bad += 1
    return file.name, writers, host, np.array(rows, dtype=np.float64), bad


def _lines(file: Path) -> Iterator[bytes | None]:
    """The lines of a file; None for one whose seal is broken, or missing after a sealed one."""
    seals = False
    try:
        with file.open("rb") as stream:
            while line := stream.readline(MOST_LINE_BYTES):
                sealed = is_sealed(line)
                seals = seals or sealed
                yield line if seals == sealed and not (sealed and is_broken(line)) else None
    except OSError:
        yield None


def _document(line: bytes) -> Any:
    """A line of JSON; None if it is not JSON."""
    try:
        return msgspec.json.decode(line)
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(line)  # also NaN, and numbers of any size
    except (ValueError, RecursionError):
        return None


def _row(sample: Mapping[str, Any]) -> list[float]:
    gpus = sample.get("accelerators") or []
    used, size = _values(gpus, "DCGM_FI_DEV_FB_USED"), _values(gpus, "DCGM_FI_DEV_FB_TOTAL")
    row = [
        float(parse_utc(sample["time"])),
        float(len(gpus)),
        mean_of(_values(gpus, "DCGM_FI_DEV_GPU_UTIL")),
        100 * sum(used) / sum(size) if sum(size) > 0 and len(used) == len(size) else np.nan,
        sum_of(_values(gpus, "DCGM_FI_DEV_POWER_USAGE"), len(gpus)),
        sum_of(_values(gpus, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"), len(gpus)) / MJ_PER_J,
        *(float(sample.get(name, np.nan)) for name in PLAIN),
        100 * float(sample.get("memory_used_bytes", np.nan)) / float(sample.get("memory_total_bytes", np.nan)),
    ]
    if inf in row or -inf in row:
        raise ValueError("a number is infinite")
    return row


def _values(gpus: list[dict[str, Any]], name: str) -> list[float]:
    return [float(gpu[name]) for gpu in gpus if name in gpu]
