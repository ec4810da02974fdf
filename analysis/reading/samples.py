"""The samples of a telemetry file, line by line if anything in it is strange."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from aiperf.clock import parse_utc
from aiperf.run_directory.checksums import is_broken, is_sealed
from aiperf.untrusted.reading import shortened
from analysis.reading.times import TIME_BYTES, times_of

Series = NDArray[np.float64]

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


COLUMNS = (
    "time_ms",
    "accelerators",
    "accelerator_percent",
    "accelerator_memory_percent",
    "accelerator_power_w",
    "accelerator_energy_j",
    "cpu_percent",
    "cpu_power_w",
    "memory_used_bytes",
    "memory_total_bytes",
    "memory_percent",
)
"""Columns kept of a sample; over a node's accelerators, use is a mean, power and energy are sums.
"""

PLAIN = COLUMNS[6:10]
"""Columns that are copied from the sample unchanged."""

MJ_PER_J = 1000

_BEFORE_SEAL = b', "crc32": "'
_SEAL_BYTES = len(_BEFORE_SEAL) + 8 + len(b'"}')


class _Accelerator(msgspec.Struct, gc=False):
    """What is kept of an accelerator."""

    use: float | None = msgspec.field(default=None, name="DCGM_FI_DEV_GPU_UTIL")
    memory_used: float | None = msgspec.field(default=None, name="DCGM_FI_DEV_FB_USED")
    memory_total: float | None = msgspec.field(default=None, name="DCGM_FI_DEV_FB_TOTAL")
    power: float | None = msgspec.field(default=None, name="DCGM_FI_DEV_POWER_USAGE")
    energy: float | None = msgspec.field(default=None, name="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")


class _Sample(msgspec.Struct, gc=False):
    """A sample as it is usually written."""

    time: str
    accelerators: list[_Accelerator] = []
    cpu_percent: float = np.nan
    cpu_power_w: float = np.nan
    memory_used_bytes: float = np.nan
    memory_total_bytes: float = np.nan
    version: object = None


_SAMPLES = msgspec.json.Decoder(_Sample)


def usual_sample(line: bytes) -> _Sample | None:
    """A line with numbers where they belong; None for any other, and for the head of a file."""
    try:
        sample = _SAMPLES.decode(line)
    except (ValueError, RecursionError):
        return None
    return sample if sample.version is None and b"null" not in line and b'"version"' not in line else None


def usual_row(sample: _Sample) -> list[float]:
    """The numbers of a sample; `analysis.reading.samples` has the same of any."""
    gpus = sample.accelerators
    used = [gpu.memory_used for gpu in gpus if gpu.memory_used is not None]
    size = [gpu.memory_total for gpu in gpus if gpu.memory_total is not None]
    row = [
        float(parse_utc(sample.time)),
        float(len(gpus)),
        mean_of([gpu.use for gpu in gpus if gpu.use is not None]),
        100 * sum(used) / sum(size) if sum(size) > 0 and len(used) == len(size) else np.nan,
        sum_of([gpu.power for gpu in gpus if gpu.power is not None], len(gpus)),
        sum_of([gpu.energy for gpu in gpus if gpu.energy is not None], len(gpus)) / MJ_PER_J,
        sample.cpu_percent, sample.cpu_power_w, sample.memory_used_bytes, sample.memory_total_bytes,
        100 * sample.memory_used_bytes / sample.memory_total_bytes,
    ]  # fmt: skip
    if inf in row or -inf in row:
        raise ValueError("a number is infinite")
    return row


def usual_samples(data: bytes, lines: int) -> Series | None:
    """The rows of the lines behind the head of a file; None if anything in it is not as usual."""
    if not lines or b"null" in data or b'"version"' in data:
        return None
    try:
        samples = _SAMPLES.decode_lines(data)
    except (ValueError, RecursionError):
        return None
    if len(samples) != lines or any(sample.version is not None for sample in samples):
        return None
    return _table(samples)


def are_sealed_alike(head: bytes, lines: Sequence[bytes]) -> bool:
    """True if a head and the lines behind it all have seals that fit, or none has any."""
    if is_sealed(head):
        return not is_broken(head) and all(
            line[-_SEAL_BYTES:-10] == _BEFORE_SEAL and line[-2:] == b'"}'
            and line[-10:-2] == b"%08x" % zlib.crc32(line[:-_SEAL_BYTES])
            for line in lines
        )  # fmt: skip
    # A seal ends with a text; a usual sample ends with a list or with a number.
    return all(line.endswith(b"}") and line[-2:-1] != b'"' for line in lines)


def _table(samples: Sequence[_Sample]) -> Series | None:
    """A row for each sample, as `usual_row`; None unless all have the same accelerators."""
    count, every = len(samples[0].accelerators), [gpu for sample in samples for gpu in sample.accelerators]
    if any(len(sample.accelerators) != count for sample in samples):
        return None
    sums = [
        column
        for name in ("use", "memory_used", "memory_total", "power", "energy")
        if (column := _sums([getattr(gpu, name) for gpu in every], count, len(samples))) is not None
    ]
    quoted = np.frombuffer(('"' + '""'.join([sample.time for sample in samples]) + '"').encode(), np.uint8)
    times = times_of(quoted.reshape(-1, TIME_BYTES)) if quoted.size == TIME_BYTES * len(samples) else None
    plain = [np.array([getattr(sample, name) for sample in samples]) for name in PLAIN]
    if times is None or len(sums) < 5 or (plain[3] == 0).any():
        return None
    use, used, size, power, energy = sums
    with np.errstate(all="ignore"):
        share = np.where(size > 0, 100 * used / size, np.nan)
        table = np.column_stack([times.astype(np.float64), np.full(len(samples), float(count)), use / max(1, count),
                                 share, power, energy / MJ_PER_J, *plain, 100 * plain[2] / plain[3]])  # fmt: skip
    return None if np.isinf(table).any() else table


def _sums(values: list[float | None], count: int, samples: int) -> Series | None:
    """The sum over each sample's accelerators; NaN if none has the value, None if some have it."""
    if not values or all(value is None for value in values):
        return np.full(samples, np.nan)
    if None in values:
        return None
    return np.array([sum(values[begin : begin + count]) for begin in range(0, len(values), count)], np.float64)  # type: ignore[arg-type]


def mean_of(values: list[float]) -> float:
    """The mean; NaN without any."""
    return sum(values) / len(values) if values else np.nan


def sum_of(values: list[float], expected: int) -> float:
    """The sum; NaN unless every accelerator reports: a partial sum would look like a saving."""
    return sum(values) if values and len(values) == expected else np.nan
