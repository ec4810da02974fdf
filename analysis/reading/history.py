"""The history list, read writer by writer with all CPUs and thinned to what a report needs."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from aiperf.records.bodies import ReplicaReady
from aiperf.records.chain import first_link
from aiperf.records.columns import (
    EPOCH,
    EVALUATED,
    FREQUENT,
    PLACE,
    SEQUENCE,
    TIME,
    TRAINED,
    TRIAL,
    Numbers,
    columns_of,
    numbers,
)
from aiperf.records.damage import Damage
from aiperf.records.history_files import Batch, decode_lines, read_from, translated
from aiperf.records.ledger import Ledger
from aiperf.rules.score import GRID_MS
from aiperf.run_directory.paths import RunPaths
from analysis.reading.integrity.lines import LineFacts, check_lines
from analysis.reading.integrity.view import PrimaryRecords, WriterRecords, start_of
from analysis.reading.workers import Workers

LONG_RUN_MS = 3_600_000
BUCKET_MS = GRID_MS // 4
"""Resolution of progress in runs of an hour and more. It divides the timeline's grid: exact there.
"""


MOST_BYTES = 1 << 30
"""Upper limit for a writer's file: several times that of a primary of 4,096 replicas in 12 h."""

FEW_LINES = 10_000
"""Damaged lines that are listed. A file with more of them, without the shape of records, is not a
history: it may have a line for each of its bytes.
"""


@dataclass(frozen=True, slots=True)
class ProgressThinning:
    """Buckets of progress reports. Times are UTC milliseconds on the writer's clock.

    Reports of a trial in the same 90 s bucket after the start, on the same side of the run's end,
    collapse to the furthest. The work done by every point of the timeline, and by the end,
    therefore stays exact.
    """

    start_ms: int
    end_ms: int

    def buckets(self, times_ms: Numbers) -> tuple[Numbers, Numbers]:
        """The buckets of times, upper edges included, as a grid point includes its own moment."""
        # Rounded up, as the negative of a division that rounds down.
        return -((self.start_ms - times_ms) // BUCKET_MS), (times_ms > self.end_ms).astype(np.int64)


def history_bytes(paths: RunPaths) -> int:
    """Size of the history list."""
    return sum(file.stat().st_size for file in paths.history_files())


Reading = Future[WriterRecords]
"""A file while it is read."""


def submit_primaries(paths: RunPaths, workers: Workers) -> list[Reading]:
    """Start reading the files of the primaries, in the order of their starts.

    That of a long run has as many lines as replicas have epochs. What looking at them takes of
    memory is gone with the process that does it.
    """
    link = first_link(paths)
    own = sorted(paths.history_files("primary"), key=lambda file: start_of(file.stem))
    return [workers.submit(read_writer, file, None, link) for file in own]


def read_history(
    paths: RunPaths, workers: Workers, own: Sequence[Reading], ledger: Ledger, primary: PrimaryRecords
) -> Iterator[WriterRecords]:
    """The records of all writers, first those of the primaries, whose files are `own`.

    The caller must fold each into the ledger, and those of primaries into `primary`, before it
    takes the next: the primary's records decide how those of the replicas are thinned, and of which
    records the hashes are wanted. A primary's file is read before those that it speaks of, so that
    it cannot be ahead of them.
    """
    link = first_link(paths)
    primaries = [reading.result() for reading in own]
    for read in primaries:  # fences must be known before the records that they drop
        ledger.fences.learn(read.records)
    yield from primaries
    known = {read.writer for read in primaries}
    selected = deque[Reading]()
    listed = paths.history_files()
    named = {
        record.body.writer for read in primaries for record in read.records if isinstance(record.body, ReplicaReady)
    }
    for file in [file for file in listed if file.stem not in known] + paths.unlisted_files(named, listed):
        wanted = frozenset(primary.wanted(file.stem))
        # Few at a time: a result that waits to be taken holds the columns of a whole file.
        selected.append(workers.submit(read_writer, file, _thinning(ledger, file.stem), link, wanted))
        if len(selected) > workers.ahead:
            yield selected.popleft().result()
    while selected:
        yield selected.popleft().result()


def _thinning(ledger: Ledger, writer: str) -> ProgressThinning | None:
    """The buckets of a writer's progress; None for short runs and runs that never began."""
    if ledger.released is None or ledger.released.body.duration_ms < LONG_RUN_MS:
        return None
    start_ms, body = ledger.released.time_ms, ledger.released.body
    end_ms = ledger.run_ended.body.end_ms if ledger.run_ended is not None else start_ms + body.duration_ms
    offset_ms = ledger.offsets_ms.get(writer, 0)
    return ProgressThinning(start_ms + offset_ms, end_ms + offset_ms)


def read_writer(
    file: Path, thinning: ProgressThinning | None, first_link: str = "", wanted: frozenset[int] = frozenset()
) -> WriterRecords:
    """The records of a file, without reports of progress with a further one of their bucket.

    `first_link` is that of the first record; `wanted` are the sequence numbers whose hashes are
    asked for.
    """
    data = read_from(file)
    name = f"history/{file.name}"
    if refusal := _refusal(data):
        facts = LineFacts(damages=(Damage(name, None, "record", f"the file is not read: {refusal}"),))
        return WriterRecords(file.stem, lines=facts)
    *lines, rest = data.split(b"\n")
    batch = decode_lines(file.name, enumerate(lines, start=1))
    heads, hashes = _heads_of(batch, len(lines)), [sha256(line).hexdigest() for line in lines]
    columns = columns_of([record.body for record in batch.records], heads)
    needless = _needless(columns.progress, thinning) if thinning is not None else np.zeros(0, np.int64)
    columns = columns.only(lambda rows: ~np.isin(rows[:, PLACE], needless))
    rare = [row for row, record in enumerate(batch.records) if type(record.body) not in FREQUENT]
    # Without their links, which are long, and which the hashes of the lines are compared with.
    records = tuple(replace(batch.records[row], previous=None) for row in rare)
    kept = heads[~np.isin(heads[:, PLACE], needless)]
    # Of lines with one sequence number the first one counts, as in the ledger.
    _, first = np.unique(kept[:, SEQUENCE], return_index=True)
    return WriterRecords(
        file.stem,
        records,
        tuple((heads[rare, PLACE] + 1).tolist()),
        check_lines(name, lines, hashes, first_link, wanted, heads),
        batch.damages,
        bool(rest),
        columns,
        np.delete(kept[:, PLACE], first),
    )


def _heads_of(batch: Batch, lines: int) -> Numbers:
    """The first four columns of the readable ones of a file's lines."""
    damaged = [damage.line - 1 for damage in batch.damages if damage.line is not None]
    places = np.delete(np.arange(lines), damaged)
    return np.column_stack([places, *numbers(batch.records, "sequence", "time_ms", "monotonic_ms")])


def _refusal(data: bytes) -> str:
    """The reason why a file cannot be a history and is not cut into lines; empty if it may be."""
    if len(data) > MOST_BYTES:
        return f"it has more than {MOST_BYTES:,} bytes"
    lines = data.count(b"\n")
    if words := translated(data):
        return words
    if lines > FEW_LINES:
        unexpected = lines - data.count(b'\n{"version":') - 1  # the first line has no newline before it
        if unexpected > FEW_LINES:
            return f"{unexpected:,} of its {lines:,} lines are not records"
    return ""


def _needless(progress: Numbers, thinning: ProgressThinning) -> Numbers:
    """The places of the reports to leave out."""
    buckets, late = thinning.buckets(progress[:, TIME])
    # The last key is the first criterion. Of each bucket the furthest report comes last.
    order = np.lexsort(
        (
            progress[:, PLACE],
            progress[:, EVALUATED],
            progress[:, TRAINED],
            progress[:, EPOCH],
            late,
            buckets,
            progress[:, TRIAL],
        )
    )
    keys = np.column_stack([progress[:, TRIAL], buckets, late])[order]
    last = np.append((keys[1:] != keys[:-1]).any(axis=1), True) if len(keys) else np.zeros(0, bool)
    return np.asarray(progress[order[~last], PLACE], np.int64)
