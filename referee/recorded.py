"""The history list of a finished run, so that it can be read again up to any cursor."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from aiperf.errors import RecordDamagedError
from aiperf.records.bodies import TrialStarted
from aiperf.records.chain import hash_of
from aiperf.records.cursor import Cursor, parse_cursor
from aiperf.records.digest.positions import is_primary, primary_of
from aiperf.records.fencing import Fences, reading_order
from aiperf.records.files import Batch, decode_lines, read_from
from aiperf.records.record import Record
from aiperf.run_directory.paths import RunPaths
from referee.digested import RecordedDigest

NEEDLESS = (b'"data":{"type":"progress"', b'"data":{"type":"phase"')
"""Records that no search looks at, and that are most of a history."""


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """The start of a trial: its record is line `place`, from 0, of its writer's file."""

    writer: str
    place: int
    body: TrialStarted
    chained: bool
    before: int | None
    """The place of this replica's start before, in the same file."""
    trial_before: int | None = None
    """The trial of that start."""


@dataclass(frozen=True, slots=True)
class _Writer:
    """The records of one file that a search looks at, and their places."""

    lines: int
    head: str
    places: list[int]
    records: list[Record]


class RecordedHistory:
    """The records of a run by writer. Damaged lines are left out, as a replica leaves them out."""

    def __init__(self, paths: RunPaths) -> None:
        self._paths = paths
        self._digests: dict[str, RecordedDigest] = {}
        self._writers = {file.stem: _read(file) for file in paths.history_files()}
        self._fences = Fences()
        for writer in self._writers.values():
            self._fences.learn(writer.records)

    @property
    def head(self) -> Cursor:
        """The last record of every writer."""
        found = {name: (writer.lines - 1, writer.head) for name, writer in self._writers.items() if writer.lines}
        return Cursor(found)

    def starts(self) -> Iterator[Start]:
        """Every start of a trial that counts, file by file."""
        for name, writer in self._writers.items():
            before: dict[int, tuple[int, int]] = {}
            for place, record in zip(writer.places, writer.records, strict=True):
                if isinstance(body := record.body, TrialStarted) and not self._fences.drops(record):
                    earlier, trial = before.get(body.replica, (None, None))
                    yield Start(name, place, body, record.previous is not None, earlier, trial)
                    before[body.replica] = place, body.trial

    def between(self, writer: str, after: int, last: int) -> Batch:
        """The records of a writer behind place `after`, up to place `last`."""
        own = self._writers[writer]
        first, end = bisect_right(own.places, after), bisect_right(own.places, last)
        return Batch(tuple(own.records[first:end]), ())

    def digest(self, primary: str) -> RecordedDigest:
        """The digest of a primary, read once."""
        if primary not in self._digests:
            self._digests[primary] = RecordedDigest(self._paths, primary)
        return self._digests[primary]

    def cursors(self, texts: Iterable[str]) -> dict[str, Cursor | str]:
        """The cursors of these texts, with the hashes of the lines; or the reason why not."""
        places = {text: self._places(text) for text in set(texts)}
        wanted: dict[str, set[int]] = {}
        for found in places.values():
            for writer, place in found.items() if isinstance(found, dict) and primary_of(found) is None else ():
                wanted.setdefault(writer, set()).add(place)
        hashes = {writer: self._hashes(writer, numbers) for writer, numbers in sorted(wanted.items())}

        def cursor(found: dict[str, int]) -> Cursor | str:
            if (primary := primary_of(found)) is not None:
                return self.digest(primary).cursor(found)
            return Cursor({writer: (place, hashes[writer][place]) for writer, place in found.items()})

        return {text: found if isinstance(found, str) else cursor(found) for text, found in places.items()}

    def _places(self, text: str) -> dict[str, int] | str:
        try:
            places = parse_cursor(text)
        except RecordDamagedError as error:
            return str(error)
        if (primary := primary_of(places)) is not None and is_primary(primary):
            return places
        for writer, place in places.items():
            lines = self._writers[writer].lines if writer in self._writers else 0
            if place >= lines:
                return f"{writer[:100]} has {lines} records, and the cursor is behind number {place}"
        return places

    def _hashes(self, writer: str, places: set[int]) -> dict[int, str]:
        lines = read_from(self._paths.history_file(writer)).split(b"\n")
        return {place: hash_of(lines[place]) for place in places}


def _read(file: Path) -> _Writer:
    lines = read_from(file).split(b"\n")[:-1]
    numbered = [(n, line) for n, line in enumerate(lines, 1) if not any(word in line for word in NEEDLESS)]
    places, records = [], []
    for number, line in numbered:
        for record in decode_lines(file.name, [(number, line)]).records:
            places.append(number - 1)
            records.append(record)
    return _Writer(len(lines), hash_of(lines[-1]) if lines else "", places, records)


class RecordsUpTo:
    """A source of records (`replica.search.knowledge.Source`): those of a run up to a cursor."""

    def __init__(self, history: RecordedHistory) -> None:
        self._history = history
        self._read: dict[str, int] = {}
        self._cursor = Cursor()

    def advance(self, cursor: Cursor) -> bool:
        """Take a cursor as the new end; False, without effect, if records were read behind it."""
        heads = cursor.heads
        if any(writer not in heads or heads[writer][0] < place for writer, place in self._read.items()):
            return False
        self._cursor = cursor
        return True

    def read_files(self) -> Iterator[Batch]:
        """Records up to the end that were not read before, writer by writer."""
        for writer, (place, _) in sorted(self._cursor.heads.items(), key=lambda item: reading_order(item[0])):
            yield self._history.between(writer, self._read.get(writer, -1), place)
            self._read[writer] = place

    def cursor(self) -> Cursor:
        """The end."""
        return self._cursor
