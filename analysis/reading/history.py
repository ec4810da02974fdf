"""The history list, read writer by writer with all CPUs and thinned to what a report needs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from msgspec.json import Decoder

from aiperf.records.bodies import AnyBody
from aiperf.records.chain import first_link
from aiperf.records.damage import Damage
from aiperf.records.decoding.epochs import PLACE, TIME, TRIAL, EpochColumns, blocks_of, epoch_columns
from aiperf.records.decoding.scan import Head, PhaseColumns, PhaseRow, Scanned, Scanner
from aiperf.records.fencing import PRIMARY
from aiperf.records.files import Batch, decode_lines, read_from
from aiperf.records.ledger import Ledger
from aiperf.records.record import Record
from aiperf.rules.score import GRID_MS
from aiperf.run_directory.paths import RunPaths
from analysis.reading.columns import Marks, Numbers, data_of, link_of
from analysis.reading.integrity.heard.columns import WitnessColumns
from analysis.reading.integrity.lines import DRIFT_MS, LineFacts, check_lines, fall_ms, head_of
from analysis.reading.integrity.view import NO_PROGRESS, PrimaryRecords, WriterRecords, start_of
from analysis.reading.training.progress import in_range
from analysis.reading.usual import UsualLines, usual_lines
from analysis.reading.workers import Workers

LONG_RUN_MS = 3_600_000
_BODY: Decoder[AnyBody] = Decoder(AnyBody)
BUCKET_MS = GRID_MS // 4
"""Resolution of progress in runs of an hour and more. It divides the timeline's grid: exact there.
"""


MOST_BYTES = 1 << 30
"""Of a writer's file: several times that of a primary of 4,096 replicas in twelve hours."""

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

    def bucket(self, time_ms: int) -> tuple[int, bool]:
        """The bucket of a time, upper edge included, as a grid point includes its own moment."""
        return -((self.start_ms - time_ms) // BUCKET_MS), time_ms > self.end_ms

    def buckets(self, times_ms: Numbers) -> tuple[Numbers, Numbers]:
        """The buckets of many times."""
        return -((self.start_ms - times_ms) // BUCKET_MS), (times_ms > self.end_ms).astype(np.int64)


def history_bytes(paths: RunPaths) -> int:
    """Size of the history list."""
    return sum(file.stat().st_size for file in paths.history_files())


def submit_primaries(paths: RunPaths, workers: Workers) -> list[Reading]:
    """Start reading the files of the primaries, in the order of their starts.

    That of a long run has as many lines as replicas have epochs. What looking at them takes of
    memory is gone with the process that does it.
    """
    link = first_link(paths)
    own = sorted(paths.history_files("primary"), key=lambda file: start_of(file.stem))
    return [(file, workers.submit(select_lines, file, None, link, columns=True)) for file in own]


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
    primaries = [_records(file, lines.result()) for file, lines in own]
    for read in primaries:  # fences must be known before the records that they drop
        ledger.fences.learn(read.records)
    yield from primaries
    own_names = {file for file, _ in own}
    others = [file for file in paths.history_files() if file not in own_names]
    selected = deque[Reading]()
    for file in others:
        wanted = frozenset(primary.wanted(file.stem))
        selected.append((file, workers.submit(select_lines, file, _thinning(ledger, file.stem), link, wanted, True)))
        if len(selected) > workers.ahead:
            yield _taken(selected)
    while selected:
        yield _taken(selected)


def _taken(selected: deque[Reading]) -> WriterRecords:
    file, lines = selected.popleft()
    return _records(file, lines.result())


def add_columns(ledger: Ledger, read: WriterRecords) -> None:
    """Fold the phases and epochs of a file into the ledger, once; none may be among its records.

    Of progress and witnesses only the last time: the ledger has no columns of them.
    """
    if not (len(read.phases) or len(read.progress) or len(read.witnesses) or len(read.epochs)):
        return
    last_ms = max(max(read.phases.times_ms, default=0), int(read.progress[:, 1].max(initial=0)),
                  int(read.witnesses.rows[:, 1].max(initial=0)),
                  int(read.epochs.column(TIME).max(initial=0)))  # fmt: skip
    ledger.last_ms = max(ledger.last_ms, last_ms)
    ledger.last_of_writer_ms[read.writer] = max(last_ms, ledger.last_of_writer_ms.get(read.writer, last_ms))
    for replica in set(read.phases.replicas):
        ledger.replica(replica).phase_columns[read.writer] = read.phases.of_replica(replica)
    for trial, begin, end in blocks_of(read.epochs.column(TRIAL)):
        ledger.trial(trial).epochs.take(read.epochs.between(begin, end))


def _thinning(ledger: Ledger, writer: str) -> ProgressThinning | None:
    """The buckets of a writer's progress; None for short runs and runs that never began."""
    if ledger.released is None or ledger.released.body.duration_ms < LONG_RUN_MS:
        return None
    start_ms, body = ledger.released.time_ms, ledger.released.body
    end_ms = ledger.run_ended.body.end_ms if ledger.run_ended is not None else start_ms + body.duration_ms
    offset_ms = ledger.offsets_ms.get(writer, 0)
    return ProgressThinning(start_ms + offset_ms, end_ms + offset_ms)


def _records(file: Path, lines: Lines) -> WriterRecords:
    numbered = zip(lines.numbers, lines.texts, strict=True)
    batch = _decode_usual(file, lines, lines.heads) if lines.heads is not None else decode_lines(file.name, numbered)
    damaged = {damage.line for damage in batch.damages}
    numbers = tuple(number for number in lines.numbers if number not in damaged)
    return WriterRecords(
        file.stem, batch.records, numbers, lines.facts, batch.damages, lines.unfinished, lines.phases, lines.anchor_ms,
        lines.progress, lines.witnesses, lines.epochs,
    )  # fmt: skip


def _decode_usual(file: Path, lines: Lines, heads: Numbers) -> Batch:
    """The records of a usual file, of whose lines only the data are left to decode."""
    records, damages, writer = list[Record](), list[Damage](), file.stem
    for number, text, (time_ms, monotonic_ms, begin) in zip(lines.numbers, lines.texts, heads.tolist(), strict=True):
        try:
            body = _BODY.decode(data_of(text, begin))
            records.append(Record(writer, number - 1, time_ms, monotonic_ms, body, link_of(text)))
            continue
        except (ValueError, RecursionError):
            pass
        strange = decode_lines(file.name, [(number, text)])
        records += strange.records
        damages += strange.damages
    return Batch(tuple(records), tuple(damages))


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of a file that are worth decoding, with their numbers from 1."""

    numbers: list[int]
    texts: list[bytes]
    unfinished: bool
    facts: LineFacts
    """Of all lines."""
    phases: PhaseColumns = field(default_factory=PhaseColumns)
    """Beginnings of phases, whose lines are left out."""
    anchor_ms: int | None = None
    """UTC minus monotonic clock of the first phase, if that is the first line."""
    heads: Numbers | None = field(default=None, compare=False)
    """Of a usual file, a row for each line: time, monotonic clock, and place of the data."""
    progress: Numbers = field(default_factory=lambda: NO_PROGRESS, compare=False)
    """Reports of progress whose lines are left out (`WriterRecords.progress`)."""
    witnesses: WitnessColumns = field(default_factory=WitnessColumns, compare=False)
    """Witnesses whose lines are left out."""
    epochs: EpochColumns = field(default_factory=EpochColumns, compare=False)
    """Completed epochs whose lines are left out."""


Reading = tuple[Path, Future[Lines]]
"""A file, and its lines while they are selected."""


def select_lines(
    file: Path, thinning: ProgressThinning | None, first_link: str = "", wanted: frozenset[int] = frozenset(),
    columns: bool = False,
) -> Lines:  # fmt: skip
    """All lines but phases, and progress reports that have a further one of their trial's bucket.

    A line that is not as usual stays, for the decoder to judge; so do all phases of a file whose
    lines are not in order. `first_link` is that of the first record; `wanted` are the sequence
    numbers whose hashes are asked for. With `columns`, the reports of a usual file become numbers.
    """
    data = read_from(file)
    name = f"history/{file.name}"
    if refusal := _refusal(data):
        facts = LineFacts(damages=(Damage(name, None, "record", f"the file is not read: {refusal}"),))
        return Lines([], [], False, facts)
    complete = data[: data.rfind(b"\n") + 1]
    unfinished = len(complete) < len(data)
    usual = usual_lines(complete, file.stem, first_link, DRIFT_MS, fall_ms(name))
    if usual is None:
        return _select_strange(file, data, thinning, first_link, wanted)
    is_kept = np.ones(len(usual.lines), bool)
    is_kept[usual.phase_places] = False
    if thinning is not None:
        is_kept[_needless_rows(usual.progress, thinning)] = False
    progress, witnesses = (_reports(usual, is_kept), _witnesses(usual)) if columns else (NO_PROGRESS, WitnessColumns())
    epochs = _epochs(usual) if columns and not file.stem.startswith(PRIMARY) else EpochColumns()
    is_kept[progress[:, 0]] = is_kept[witnesses.rows[:, 0]] = is_kept[epochs.column(PLACE)] = False
    places = np.flatnonzero(is_kept)
    kept = (places + 1).tolist()
    hashes = {sequence: usual.hashes[sequence] for sequence in wanted if sequence < len(usual.lines)}
    anchor_ms = usual.anchor_ms if 0 in usual.phase_places[:1] else None
    facts = LineFacts(len(usual.lines), True, hashes)
    texts = [usual.lines[number - 1] for number in kept]
    return Lines(kept, texts, unfinished, facts, usual.phases, anchor_ms, usual.heads[places], progress,
                 witnesses, epochs)  # fmt: skip


def _epochs(usual: UsualLines) -> EpochColumns:
    """The completed epochs of a file; none if one says more than a row has."""
    if not len(usual.epochs):
        return EpochColumns()
    heads = usual.heads[usual.epochs]
    documents = [data_of(usual.lines[place], begin)
                 for place, begin in zip(usual.epochs.tolist(), heads[:, 2].tolist(), strict=True)]  # fmt: skip
    found = epoch_columns(documents, np.column_stack([usual.epochs, heads[:, :2]]))
    return EpochColumns() if found is None else found


def _reports(usual: UsualLines, is_kept: Marks) -> Numbers:
    """The reports of progress that are kept; none if a record cannot say what one of them does."""
    if len(usual.witnesses):
        return NO_PROGRESS  # a primary makes none
    rows = usual.progress[is_kept[usual.progress[:, 0]]]
    found = np.column_stack([rows[:, :2], usual.heads[rows[:, 0], 1], rows[:, 2:]])
    return found if in_range(found) else NO_PROGRESS


def _needless_rows(progress: Numbers, thinning: ProgressThinning) -> Numbers:
    """Places, from 0, of the progress reports to leave out; as `_needless`."""
    places, times, trials, *position = progress.T
    buckets, late = thinning.buckets(times)
    order = np.lexsort((places, *reversed(position), late, buckets, trials))
    keys = np.column_stack([trials, buckets, late])[order]
    last = np.append((keys[1:] != keys[:-1]).any(axis=1), True) if len(keys) else np.zeros(0, bool)
    return np.asarray(places[order][~last], np.int64)


def _witnesses(usual: UsualLines) -> WitnessColumns:
    """The witnesses; none if the file begins with one: its first record is looked at as such."""
    return WitnessColumns() if (usual.witnesses.rows[:, 0] == 0).any() else usual.witnesses


def _select_strange(
    file: Path, data: bytes, thinning: ProgressThinning | None, first_link: str, wanted: frozenset[int]
) -> Lines:
    """The same, line by line, for a file that is not as usual."""
    name = f"history/{file.name}"
    *lines, rest = data.split(b"\n")
    scanned = list(map(Scanner(file.stem).scan, lines))
    heads = [head_of(line) if found is None else found[0] for line, found in zip(lines, scanned, strict=True)]
    facts = check_lines(name, lines, first_link, wanted, heads)
    needless = _needless(scanned, thinning) if thinning is not None else set[int]()
    phases = dict[int, tuple[Head, PhaseRow]]()
    if not facts.damages and not file.stem.startswith(PRIMARY):
        phases = {n: (found[0], found[2]) for n, found in enumerate(scanned, 1) if found and found[2]}
    kept = [number for number in range(1, len(lines) + 1) if number not in needless and number not in phases]
    anchor_ms = phases[1][0][1] - phases[1][0][2] if 1 in phases else None
    columns = PhaseColumns.of(list(phases.values()))
    return Lines(kept, [lines[number - 1] for number in kept], bool(rest), facts, columns, anchor_ms)


def _refusal(data: bytes) -> str:
    """The reason why a file cannot be a history and is not cut into lines; empty if it may be."""
    if len(data) > MOST_BYTES:
        return f"it has more than {MOST_BYTES:,} bytes"
    lines = data.count(b"\n")
    if lines > FEW_LINES:
        strange = lines - data.count(b'\n{"version":') - 1
        if strange > FEW_LINES:
            return f"{strange:,} of its {lines:,} lines are not records"
    return ""


def _needless(scanned: Sequence[Scanned | None], thinning: ProgressThinning) -> set[int]:
    """Numbers, from 1, of the progress reports to leave out."""
    furthest: dict[tuple[int, tuple[int, bool]], tuple[tuple[int, int, int], int]] = {}
    needless: set[int] = set()
    for number, found in enumerate(scanned, start=1):
        if found is None or found[1] is None:
            continue
        trial, position = found[1]
        key = (trial, thinning.bucket(found[0][1]))
        known = furthest.get(key)
        if known is None:
            furthest[key] = position, number
        elif known[0] <= position:
            furthest[key] = position, number
            needless.add(known[1])
        else:
            needless.add(number)
    return needless
