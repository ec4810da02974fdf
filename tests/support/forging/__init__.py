"""Histories that an opponent has changed at will, and made to fit again as far as is asked for."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from aiperf.errors import AiperfError, RecordDamagedError
from aiperf.records.bodies import EpochCompleted, EpochWitnessed, RunEnded, TrialClosed, TrialStarted
from aiperf.records.chain import first_link, hash_of
from aiperf.records.cursor import Cursor, parse_cursor
from aiperf.records.digest.entries import PREFIX, primary_of
from aiperf.records.digest.reader import DigestReader
from aiperf.records.record import Record, decode_record, encode_record
from aiperf.run_directory.paths import RunPaths
from aiperf.run_directory.recorded_files import beginnings

Change = Callable[[Record], Record | Sequence[Record] | None]
"""The records in place of one; None: it is removed."""

Forge = Callable[[Record], Record]


def rewrite(paths: RunPaths, change: Change, keep_chain: bool = True, repair_witness: bool = True) -> None:
    """Change the records of all files, those of primaries last. Checksums always fit.

    `keep_chain`: numbers and links fit again, also after a change of run.json; else records keep
    those that `change` gives them. `repair_witness`, for chains: what names other records names
    those that are there now. Witnesses of removed epochs are removed; one that `change` adds needs
    only its trial and epoch. A cursor's hash is kept if `change` gives it, and is zeros if the
    cursor includes its own record.
    """
    _Forger(paths, change, keep_chain, keep_chain and repair_witness).write()


class _Forger:
    """Numbers the changed records first, then writes each line after those that it names."""

    def __init__(self, paths: RunPaths, change: Change, chain: bool, repair: bool) -> None:
        self._paths, self._chain, self._repair = paths, chain, repair
        self._records: dict[str, list[Record]] = {}
        self._moved: dict[tuple[str, int], int] = {}
        """New number by writer and old number; of a removed record that of the one before."""
        self._epochs: dict[tuple[str, int, int], list[int]] = {}
        """Numbers of epochs that have no witness yet, by writer, trial and epoch."""
        self._given: set[tuple[str, int]] = set()
        """Starts whose cursor's hash `change` has given, by writer and number."""
        self._lines: dict[str, list[bytes]] = {}
        primaries = paths.history_files("primary")
        for file in [*(file for file in paths.history_files() if file not in primaries), *primaries]:
            old = [decode_record(line) for line in file.read_bytes().split(b"\n")[:-1]]
            self._change(file.stem, old, change)

    def _change(self, writer: str, old: list[Record], change: Change) -> None:
        kept: list[Record] = []
        for number, record in enumerate(old):
            found = change(record)
            for forged in () if found is None else (found,) if isinstance(found, Record) else found:
                witnessed = self._witnessed(forged)
                if witnessed is None:
                    continue
                if isinstance(forged.body, EpochCompleted):
                    key = (writer, forged.body.trial, forged.body.epoch)
                    self._epochs.setdefault(key, []).append(len(kept))
                if _cursor_given(forged, record):
                    self._given.add((writer, len(kept)))
                kept.append(replace(witnessed, sequence=len(kept)) if self._chain else witnessed)
            self._moved[writer, number] = len(kept) - 1
        self._records[writer], self._lines[writer] = kept, []

    def _witnessed(self, record: Record) -> Record | None:
        """A witness with the number of its epoch, None if that is gone; any other record itself."""
        body = record.body
        if not self._repair or not isinstance(body, EpochWitnessed):
            return record
        numbers = self._epochs.get((body.writer, body.trial, body.epoch))
        return replace(record, body=replace(body, sequence=numbers.pop(0))) if numbers else None

    def write(self) -> None:
        """Write all files."""
        while unfinished := [writer for writer, own in self._records.items() if len(self._lines[writer]) < len(own)]:
            before = sum(map(len, self._lines.values()))
            for writer in unfinished:
                for record in self._records[writer][len(self._lines[writer]) :]:
                    fitting = self._fitting(record)
                    if fitting is None:
                        break
                    self._append(writer, fitting)
            if sum(map(len, self._lines.values())) == before:
                self._break_circle(unfinished)
        for writer, lines in self._lines.items():
            self._paths.history_file(writer).write_bytes(b"".join(lines))

    def _append(self, writer: str, record: Record) -> None:
        lines = self._lines[writer]
        link = hash_of(lines[-1][:-1]) if lines else first_link(self._paths)
        lines.append(encode_record(replace(record, previous=link) if self._chain else record))

    def _break_circle(self, unfinished: list[str]) -> None:
        heads = {writer: self._records[writer][len(self._lines[writer])] for writer in unfinished}
        writer = next(name for name, record in heads.items() if isinstance(record.body, TrialStarted))
        body = heads[writer].body
        assert isinstance(body, TrialStarted)
        self._append(writer, replace(heads[writer], body=replace(body, cursor_hash="0" * 64)))

    def _fitting(self, record: Record) -> Record | None:
        """The record with the hashes of those that it names; None if these are not written yet."""
        body = record.body
        if not self._repair:
            return record
        if isinstance(body, EpochWitnessed):
            digest = self._hash(body.writer, body.sequence)
            return None if digest is None else replace(record, body=replace(body, digest=digest))
        if isinstance(body, TrialClosed) and body.sequence is not None and body.writer in self._records:
            number = self._moved.get((body.writer, body.sequence), len(self._records[body.writer]) - 1)
            digest = self._hash(body.writer, number)
            return None if digest is None else replace(record, body=replace(body, sequence=number, digest=digest))
        if isinstance(body, RunEnded) and body.files:
            return replace(record, body=replace(body, files=tuple(beginnings(self._paths))))
        given = (record.writer, record.sequence) in self._given
        if isinstance(body, TrialStarted) and body.cursor is not None and not given:
            return self._with_cursor(record, body, body.cursor)
        return record

    def _with_cursor(self, record: Record, body: TrialStarted, text: str) -> Record | None:
        if text.startswith(PREFIX):
            return replace(record, body=replace(body, cursor_hash=self._hash_in_digest(text) or body.cursor_hash))
        heads = {}
        for writer, number in self._known_places(text).items():
            place = self._moved.get((writer, number), number)
            digest = self._hash(writer, place)
            if digest is None:
                return None
            heads[writer] = place, digest
        cursor = Cursor(heads)
        return replace(record, body=replace(body, cursor=cursor.text if heads else text, cursor_hash=cursor.hash))

    def _hash_in_digest(self, text: str) -> str | None:
        """The hash at a place in a digest, whose first link may be another one now."""
        try:
            ((name, number),) = (places := parse_cursor(text)).items()
            lines = list(DigestReader(self._paths, primary_of(places) or "").read_new())
        except (AiperfError, OSError, ValueError):
            return None
        return next((Cursor({name: (number, line.hash)}).hash for line in lines if line.number == number), None)

    def _known_places(self, cursor: str) -> dict[str, int]:
        """The places of a cursor; none if it is not one or names other files."""
        try:
            places = parse_cursor(cursor)
        except RecordDamagedError:
            return {}
        return places if places.keys() <= self._records.keys() else {}

    def _hash(self, writer: str, number: int) -> str | None:
        lines = self._lines[writer]
        return hash_of(lines[number][:-1]) if 0 <= number < len(lines) else None


def _cursor_given(forged: Record, record: Record) -> bool:
    """True if a change gives a start its cursor's hash, or another place in a digest."""
    new, old = forged.body, record.body
    if not isinstance(new, TrialStarted):
        return False
    known, place = (old.cursor_hash, old.cursor) if isinstance(old, TrialStarted) else (None, None)
    return new.cursor_hash != known or (new.cursor != place and (new.cursor or "").startswith(PREFIX))


def of_trial(trial: int, **changes: object) -> Forge:
    """The change of some fields of a trial's start."""

    def change(record: Record) -> Record:
        if isinstance(record.body, TrialStarted) and record.body.trial == trial:
            return replace(record, body=replace(record.body, **changes))
        return record

    return change


def unchain(paths: RunPaths) -> None:
    """Make a run one of version 1, whose records have no links and no witnesses."""

    def plain(record: Record) -> Record | None:
        if isinstance(record.body, EpochWitnessed | TrialClosed):
            return None
        return replace(record, previous=None)

    rewrite(paths, plain, keep_chain=False)
    rewrite(paths, _Renumber(), keep_chain=False)


class _Renumber:
    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def __call__(self, record: Record) -> Record:
        number = self._counts.get(record.writer, 0)
        self._counts[record.writer] = number + 1
        return replace(record, sequence=number)
