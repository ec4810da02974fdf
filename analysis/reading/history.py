"""The history list, read writer by writer with all CPUs and thinned to what a report needs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aiperf.history.files import decode_lines, read_from
from aiperf.history.ledger import Ledger
from aiperf.history.records import Record, scan_progress
from aiperf.rules.score import GRID_MS
from aiperf.run_directory.paths import RunPaths
from analysis.reading.workers import Workers

LONG_RUN_MS = 3_600_000
BUCKET_MS = GRID_MS // 4
"""Resolution of progress in runs of an hour and more. It divides the timeline's grid: exact there.
"""


@dataclass(frozen=True)
class WriterRecords:
    """One writer's records, its damaged lines, and its file if the last line is incomplete."""

    records: tuple[Record, ...]
    damages: tuple[str, ...]
    unfinished: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProgressThinning:
    """Buckets of progress reports. Times are UTC milliseconds on the writer's clock.

    Reports of a trial in the same 90 s bucket after the start, on the same side of the run's end,
    collapse to the furthest. The work done by every point of the timeline, and by the end,
    therefore stays exact.
    """

    start_ms: int
    end_ms: int

    def bucket(self, time_ms: int) -> tuple[int, bool]:
        """The bucket of a time, upper edge included, as a grid point includes its own moment."""
        return -((self.start_ms - time_ms) // BUCKET_MS), time_ms > self.end_ms


def history_bytes(paths: RunPaths) -> int:
    """Size of the history list."""
    return sum(file.stat().st_size for file in paths.history_files())


def read_history(paths: RunPaths, workers: Workers, ledger: Ledger) -> Iterator[WriterRecords]:
    """The records of all writers, the primary's first.

    The caller must fold each into the ledger before it takes the next: the primary's records decide
    how those of the replicas are thinned.
    """
    own = paths.history_files("primary")
    for file in own:
        yield _records(file, select_lines(file, None))
    others = [file for file in paths.history_files() if file not in own]
    selected = deque(workers.submit(select_lines, file, _thinning(ledger, file.stem)) for file in others)
    for file in others:
        yield _records(file, selected.popleft().result())


def _thinning(ledger: Ledger, writer: str) -> ProgressThinning | None:
    """The buckets of a writer's progress; None for short runs and runs that never began."""
    if ledger.released is None or ledger.released.body.duration_ms < LONG_RUN_MS:
        return None
    start_ms, body = ledger.released.time_ms, ledger.released.body
    end_ms = ledger.run_ended.body.end_ms if ledger.run_ended is not None else start_ms + body.duration_ms
    offset_ms = ledger.offsets_ms.get(writer, 0)
    return ProgressThinning(start_ms + offset_ms, end_ms + offset_ms)


def _records(file: Path, lines: Lines) -> WriterRecords:
    batch = decode_lines(file.name, zip(lines.numbers, lines.texts, strict=True))
    unfinished = (file.name,) if lines.unfinished else ()
    return WriterRecords(batch.records, tuple(map(str, batch.damages)), unfinished)


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of a file that are worth decoding, with their numbers from 1."""

    numbers: list[int]
    texts: list[bytes]
    unfinished: bool


def select_lines(file: Path, thinning: ProgressThinning | None) -> Lines:
    """All lines except progress reports that have a further one of the same trial in their bucket.

    A line that is not an intact progress report stays, for the decoder to judge.
    """
    *lines, rest = read_from(file).split(b"\n")
    needless = _needless(lines, thinning) if thinning is not None else frozenset[int]()
    kept = [number for number in range(1, len(lines) + 1) if number not in needless]
    return Lines(kept, [lines[number - 1] for number in kept], bool(rest))


def _needless(lines: list[bytes], thinning: ProgressThinning) -> set[int]:
    """Numbers, from 1, of the progress reports to leave out."""
    furthest: dict[tuple[int, tuple[int, bool]], tuple[tuple[int, int, int], int]] = {}
    needless: set[int] = set()
    for number, line in enumerate(lines, start=1):
        report = scan_progress(line)
        if report is None:
            continue
        trial, time_ms, position = report
        key = (trial, thinning.bucket(time_ms))
        known = furthest.get(key)
        if known is None:
            furthest[key] = position, number
        elif known[0] <= position:
            furthest[key] = position, number
            needless.add(known[1])
        else:
            needless.add(number)
    return needless
