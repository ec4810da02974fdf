"""The history list, read writer by writer with all CPUs and thinned to what a report needs."""

import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from msgspec import UNSET

from aiperf.facts import LAST_MS
from aiperf.records.bodies import AnyBody, ReplicaReady
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
    rows_of,
)
from aiperf.records.damage import Damage
from aiperf.records.history_files import decode_lines, read_from, translated
from aiperf.records.ledger import Ledger
from aiperf.records.record import CHECKSUM_KEY, DECODER, HASH_LENGTH, HEXADECIMAL, TAIL_BYTES, VERSION, Record
from aiperf.rules.score import GRID_MS
from aiperf.run_directory.paths import RunPaths
from analysis.reading.integrity.lines import LineFacts, check_lines
from analysis.reading.integrity.view import PrimaryRecords, WriterRecords, start_of
from analysis.reading.times import TIME_BYTES, times_of
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
    decoded = _decoded_together(lines, file.stem) or _decoded_one_by_one(lines, file.name)
    heads, hashes = decoded.heads, [sha256(line).hexdigest() for line in lines]
    columns = columns_of(decoded.bodies, heads)
    needless = _needless(columns.progress, thinning) if thinning is not None else np.zeros(0, np.int64)
    columns = columns.only(lambda rows: ~np.isin(rows[:, PLACE], needless))
    rare = [row for row, body in enumerate(decoded.bodies) if type(body) not in FREQUENT]
    records = tuple(
        Record(file.stem, sequence, time_ms, monotonic_ms, decoded.bodies[row])
        for row, (_, sequence, time_ms, monotonic_ms) in zip(rare, heads[rare].tolist(), strict=True)
    )
    kept = heads[~np.isin(heads[:, PLACE], needless)]
    # Of lines with one sequence number the first one counts, as in the ledger.
    _, first = np.unique(kept[:, SEQUENCE], return_index=True)
    return WriterRecords(
        file.stem,
        records,
        tuple((heads[rare, PLACE] + 1).tolist()),
        check_lines(name, lines, hashes, first_link, wanted, heads),
        decoded.damages,
        bool(rest),
        columns,
        np.delete(kept[:, PLACE], first),
    )


@dataclass(frozen=True, slots=True)
class _Decoded:
    """Readable content of lines: the first four columns, and the body of each."""

    heads: Numbers
    bodies: Sequence[AnyBody]
    damages: tuple[Damage, ...] = ()


def _decoded_together(lines: Sequence[bytes], writer: str) -> _Decoded | None:
    """Decode all lines by one call; None if the decoder would refuse any, which needs words.

    What `decode_record` checks of a line is checked of all: the same bytes, links and times.
    """
    if not lines or not _are_whole(lines):
        return None
    try:
        found = DECODER.decode_lines(b"\n".join(lines))
    except (ValueError, RecursionError):
        return None
    # Below, a property of all lines is a set, of one element if every line is right: no line is
    # looked at by itself.
    links = [line.previous for line in found]
    chained = UNSET not in links
    texts = "".join(links) if chained else ""  # type: ignore[arg-type]
    if (
        len(found) != len(lines)
        or {line.writer for line in found} != {writer}
        or {line.version for line in found} != {VERSION if chained else 1}
        or (not chained and set(links) != {UNSET})
        or (chained and ({*map(len, links)} != {HASH_LENGTH} or not set(texts) <= set(HEXADECIMAL)))  # type: ignore[arg-type]
    ):
        return None
    times = _times([line.time for line in found])
    if times is None or times.min() < 0 or times.max() > LAST_MS:
        return None
    heads = [
        np.arange(len(found)),
        np.array([line.sequence for line in found], np.int64),
        times,
        np.array([line.monotonic_ms for line in found], np.int64),
    ]
    return _Decoded(np.column_stack(heads), [line.data for line in found])


def _are_whole(lines: Sequence[bytes]) -> bool:
    """True if each line ends with a checksum, and the checksum fits."""
    # The tail is the key, eight digits, and the two characters that close text and object.
    if {line[-TAIL_BYTES:-10] for line in lines} != {CHECKSUM_KEY} or {line[-2:] for line in lines} != {b'"}'}:
        return False
    return [b"%08x" % zlib.crc32(line[:-TAIL_BYTES]) for line in lines] == [line[-10:-2] for line in lines]


def _times(texts: Sequence[str]) -> Numbers | None:
    try:
        every = "".join(f'"{text}"' for text in texts).encode("ascii")
    except UnicodeError:
        return None
    if {*map(len, texts)} != {TIME_BYTES - 2}:
        return None
    return times_of(np.frombuffer(every, np.uint8).reshape(-1, TIME_BYTES))


def _decoded_one_by_one(lines: Sequence[bytes], name: str) -> _Decoded:
    """Decode a file with damaged lines one by one, and put the damages into words."""
    batch = decode_lines(name, enumerate(lines, start=1))
    damaged = {damage.line for damage in batch.damages}
    places = [place for place in range(len(lines)) if place + 1 not in damaged]
    heads = [
        (place, record.sequence, record.time_ms, record.monotonic_ms)
        for place, record in zip(places, batch.records, strict=True)
    ]
    bodies = [record.body for record in batch.records]
    return _Decoded(np.array(heads, np.int64) if heads else rows_of(4), bodies, batch.damages)


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
