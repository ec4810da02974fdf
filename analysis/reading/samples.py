"""The samples of a telemetry file as a table."""

from collections.abc import Iterator, Sequence
from math import isfinite
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from aiperf.clock import parse_utc
from aiperf.run_directory.checksums import is_broken, is_sealed
from aiperf.untrusted.reading import shortened
from analysis.reading.health import CardHealth, Health, HealthFields, health_of

Series = NDArray[np.float64]

Counters = dict[str, Series]
"""Joules by the energy counter of each card, one value a sample; NaN if it did not report."""

FileSamples = tuple[str, list[tuple[int, str]], str, Series, int, Counters, Health]
"""Name of the file, the writers by the first sample of each, host, samples at the times of their
writers' clocks, the number of lines that could not be read, the counters of the samples, and signs
of health.
"""

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
    "accelerator_clock_mhz",
    "multiprocessors_percent",
    "tensor_cores_percent",
)
"""Columns kept of a sample; over a node's accelerators, use and clock are means, power and energy
are sums.
"""

PLAIN = COLUMNS[6:10]
"""Columns that are copied from the sample unchanged."""

MOST_LINE_BYTES = 1 << 20
"""A longer line is read as several, none of which is a sample."""

MOST_UNREADABLE = 1000
"""Lines of a file that are not samples, after which the rest of it is not read."""

MJ_PER_J = 1000


# A long run has millions of samples, which refer to nothing that refers back: the garbage collector
# need not visit them.
class _Accelerator(CardHealth, gc=False):
    """Kept values of an accelerator; NaN: it does not report them."""

    use: float = msgspec.field(default=np.nan, name="DCGM_FI_DEV_GPU_UTIL")
    memory_used: float = msgspec.field(default=np.nan, name="DCGM_FI_DEV_FB_USED")
    memory_total: float = msgspec.field(default=np.nan, name="DCGM_FI_DEV_FB_TOTAL")
    power: float = msgspec.field(default=np.nan, name="DCGM_FI_DEV_POWER_USAGE")
    energy: float = msgspec.field(default=np.nan, name="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
    clock: float = msgspec.field(default=np.nan, name="DCGM_FI_DEV_SM_CLOCK")


class _Activity(msgspec.Struct, gc=False):
    """DCGM's measures of an accelerator, as shares of its cycles."""

    multiprocessors: float = msgspec.field(default=np.nan, name="DCGM_FI_PROF_SM_ACTIVE")
    tensor_cores: float = msgspec.field(default=np.nan, name="DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")


class _Line(HealthFields, gc=False):
    """A sample, or the head of a sampler, which has a version and no time."""

    time: str = ""
    accelerators: list[_Accelerator] | None = None
    dcgm: list[_Activity] | None = None
    cpu_percent: float = np.nan
    cpu_power_w: float = np.nan
    memory_used_bytes: float = np.nan
    memory_total_bytes: float = np.nan
    version: Any = None
    writer: Any = None
    host: Any = None


_DECODER = msgspec.json.Decoder(_Line)


def read_samples(file: Path) -> FileSamples:
    """The samples of a file, which may be damaged in any way."""
    heads, host, bad = list[tuple[int, str]](), "?", 0
    times, samples = list[int](), list[_Line]()
    for line in _lines(file):
        if bad > MOST_UNREADABLE:
            break
        try:
            found = _DECODER.decode(line) if line is not None else _Line()
            if found.version is not None and found.writer is not None and found.host is not None:
                heads.append((len(samples), str(found.writer)))
                host = shortened(str(found.host))
                continue
            time_ms = parse_utc(found.time if found.version is None else "")
        except (ValueError, RecursionError):
            bad += 1
            continue
        times.append(time_ms)
        samples.append(found)
    table, fits = _table(times, samples)
    # Heads count all rows before them, and some of these are left out of the table.
    before = np.append(0, np.cumsum(fits)).tolist()
    writers = [(before[begin], writer) for begin, writer in heads]
    counters = {card: values[fits] for card, values in _counters(samples).items()}
    health = health_of(np.array(times, np.float64), samples, [sample.accelerators or () for sample in samples])
    return file.name, writers, host, table[fits], bad + int((~fits).sum()), counters, health


def _counters(samples: Sequence[_Line]) -> Counters:
    """Collect energy counters by UUID; by index, or by position, for a card without one."""
    found: Counters = {}
    for row, sample in enumerate(samples):
        for place, gpu in enumerate(sample.accelerators or ()):
            if isfinite(gpu.energy):
                card = str(gpu.uuid or (place if gpu.index is None else gpu.index))
                found.setdefault(card, np.full(len(samples), np.nan))[row] = gpu.energy / MJ_PER_J
    return found


def _lines(file: Path) -> Iterator[bytes | None]:
    """The lines of a file; None for one without its checksum, or with a wrong one."""
    required = False
    try:
        with file.open("rb") as stream:
            while line := stream.readline(MOST_LINE_BYTES):
                there = is_sealed(line)
                # Once a line of a file has a checksum all later ones have: one without it was added
                # or changed.
                required = required or there
                yield line if required == there and not (there and is_broken(line)) else None
    except OSError:
        yield None


def _mean_percent(samples: Sequence[_Line], name: str) -> Series:
    """Mean of what DCGM measured of each accelerator, in percent."""
    every = [[getattr(part, name) for part in sample.dcgm or ()] for sample in samples]
    # DCGM writes a number far above 1 where it has no value (DCGM_FP64_BLANK).
    known = [[value for value in values if 0 <= value <= 1] for values in every]
    return np.array([100 * sum(values) / len(values) if values else np.nan for values in known], np.float64)


def _table(times: Sequence[int], samples: Sequence[_Line]) -> tuple[Series, NDArray[np.bool_]]:
    """A row for each sample, and marks of those whose numbers can be."""
    counts = np.array([len(sample.accelerators or ()) for sample in samples], np.int64)
    every = [gpu for sample in samples for gpu in sample.accelerators or ()]
    of = np.repeat(np.arange(len(samples)), counts)

    def sums(name: str) -> tuple[Series, Series]:
        """Sum each sample over the accelerators that report the value, and count these."""
        values = np.fromiter(map(attrgetter(name), every), np.float64, len(every))
        there = ~np.isnan(values)
        found = np.bincount(of[there], values[there], len(samples)).astype(np.float64)
        return found, np.bincount(of[there], minlength=len(samples)).astype(np.float64)

    (use, users), (used, of_used), (size, of_size), (power, powers), (energy, energies), (clock, clocks) = (
        sums(name) for name in ("use", "memory_used", "memory_total", "power", "energy", "clock")
    )
    plain = [np.fromiter(map(attrgetter(name), samples), np.float64, len(samples)) for name in PLAIN]
    with np.errstate(all="ignore"):
        table = np.column_stack(
            [
                np.array(times, np.float64),
                counts.astype(np.float64),
                use / users,
                np.where((size > 0) & (of_used == of_size), 100 * used / size, np.nan),
                # A partial sum would look like a saving.
                np.where((powers == counts) & (counts > 0), power, np.nan),
                np.where((energies == counts) & (counts > 0), energy, np.nan) / MJ_PER_J,
                *plain,
                100 * plain[2] / plain[3],
                clock / clocks,
                _mean_percent(samples, "multiprocessors"),
                _mean_percent(samples, "tensor_cores"),
            ]
        )
    # A memory of 0 would divide; no node reports that, nor anything infinite.
    return table, ~np.isinf(table).any(axis=1) & (plain[3] != 0)
