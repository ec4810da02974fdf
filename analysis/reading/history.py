"""The history list read writer by writer, with all CPUs, and thinned to what a report needs of it."""

from __future__ import annotations

import re
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aiperf.clock import parse_utc
from aiperf.history.files import decode_lines, read_from
from aiperf.history.ledger import Ledger
from aiperf.history.records import Record
from aiperf.rules.score import GRID_MS
from aiperf.run_directory.paths import RunPaths
from analysis.reading.workers import Workers

LONG_RUN_MS = 3_600_000
MOMENT_MS = GRID_MS // 4
"""In runs of an hour and more, progress is kept to 90 s: the timeline, whose grid that divides, is exact."""


PROGRESS = re.compile(
    rb'\{"version":1,"writer":"[\w-]+","sequence":\d+,"time":"(?P<time>[\dT:.Z-]{24})","monotonic_ms":-?\d+,'
    rb'"data":\{"type":"progress","trial":(?P<trial>\d+),"epoch":(?P<epoch>\d+),"images_trained":(?P<trained>\d+),'
    rb'"images_evaluated":(?P<evaluated>\d+)\},"crc32":"(?P<crc>[0-9a-f]{8})"\}'
)
"""A progress report exactly as `aiperf.history.records` writes it: millions are looked at, few need decoding."""

CHECKSUM_BYTES = len(',"crc32":"00000000"}')


@dataclass(frozen=True)
class Part:
    """What one writer wrote."""

    records: tuple[Record, ...]
    damages: tuple[str, ...]
    unfinished: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Moments:
    """Which progress reports of a trial are one to a report. Times are UTC milliseconds on the writer's clock.

    A moment is the step up to a multiple of MOMENT_MS after the start, on one side of the end of the run. The
    furthest report of each is kept, so that what was done by every point of the timeline, and by the end, is exact.
    """

    start_ms: int
    end_ms: int

    def __call__(self, time_ms: int) -> tuple[int, bool]:
        """The moment of a time."""
        return -((self.start_ms - time_ms) // MOMENT_MS), time_ms > self.end_ms


def history_bytes(paths: RunPaths) -> int:
    """Size of the history list."""
    return sum(file.stat().st_size for file in paths.history.glob("*.jsonl"))


def read_history(paths: RunPaths, workers: Workers, ledger: Ledger) -> Iterator[Part]:
    """The parts of all writers, the primary's first: the caller folds each into the ledger before it takes the next."""
    files = sorted(paths.history.glob("*.jsonl"))
    own = [file for file in files if file.name.startswith("primary")]
    for file in own:
        yield _part(file, select_lines(file, None))
    others = [file for file in files if file not in own]
    selected = deque(workers.submit(select_lines, file, _moments(ledger, file.stem)) for file in others)
    for file in others:
        yield _part(file, selected.popleft().result())


def _moments(ledger: Ledger, writer: str) -> Moments | None:
    """How to thin a writer's progress; not at all in short runs, or where the run never began."""
    if ledger.released is None or ledger.released.body.duration_ms < LONG_RUN_MS:
        return None
    start_ms, body = ledger.released.time_ms, ledger.released.body
    end_ms = ledger.run_ended.body.end_ms if ledger.run_ended is not None else start_ms + body.duration_ms
    offset_ms = ledger.offsets_ms.get(writer, 0)
    return Moments(start_ms + offset_ms, end_ms + offset_ms)


def _part(file: Path, lines: Lines) -> Part:
    batch = decode_lines(file.name, zip(lines.numbers, lines.texts, strict=True))
    unfinished = (file.name,) if lines.unfinished else ()
    return Part(batch.records, tuple(map(str, batch.damages)), unfinished)


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of a file that are worth decoding, with their numbers from 1."""

    numbers: list[int]
    texts: list[bytes]
    unfinished: bool


def select_lines(file: Path, moments: Moments | None) -> Lines:
    """All lines but progress reports that a further one of the same trial and moment makes needless.

    Whatever does not look exactly like a report of ours, or has another checksum, is left for the decoder to judge.
    """
    *lines, rest = read_from(file).split(b"\n")
    chosen: dict[object, tuple[tuple[int, ...], int]] = {}
    needless: set[int] = set()
    for number, line in enumerate(lines if moments is not None else (), start=1):
        found = PROGRESS.fullmatch(line)
        if found is None or b"%08x" % zlib.crc32(line[:-CHECKSUM_BYTES]) != found["crc"]:
            continue
        trial, *position = map(int, found.group("trial", "epoch", "trained", "evaluated"))
        assert moments is not None
        key = (trial, moments(parse_utc(found["time"].decode())))
        known = chosen.get(key)
        if known is None or known[0] <= tuple(position):
            chosen[key] = tuple(position), number
            needless |= set() if known is None else {known[1]}
        else:
            needless.add(number)
    kept = [number for number in range(1, len(lines) + 1) if number not in needless]
    return Lines(kept, [lines[number - 1] for number in kept], bool(rest))
