"""Checks of digests: each is made again from the raw records, and compared entry by entry.

A digest begins with the trials of earlier primaries, by id (`aiperf.records.digest.compiled`).
Then it has the ends of its primary's trials in the order in which that closed them, each after the
trial's start, and a start after the end of its replica's trial before. A digest may end early, as
it does when its primary dies: a cursor behind its end is found by `check_cursors`.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from aiperf.errors import DigestDamagedError, RecordDamagedError
from aiperf.records.bodies import TrialClosed
from aiperf.records.cursor import parse_cursor
from aiperf.records.damage import Damage
from aiperf.records.digest.compiled import began_of, entries_of, over_of
from aiperf.records.digest.entries import (
    SEGMENT_ENTRIES,
    Began,
    Entry,
    How,
    Opened,
    Over,
    encode_entry,
    head_name,
    is_primary,
    primary_of,
)
from aiperf.records.digest.reader import DigestReader, Line
from aiperf.records.entries import TrialLedger
from aiperf.run_directory.paths import RunPaths, digest_segment, digests_of
from analysis.reading.integrity.view import RunView, WitnessedEpochs, start_of


def hashes_in_digest(view: RunView, paths: RunPaths, primary: str, numbers: frozenset[int]) -> dict[int, str]:
    """The hashes of entries of a digest by number, of those that are there."""
    if not is_primary(primary):
        return {}
    hashes = view.digests.get(primary)
    if hashes is None:
        hashes = [line.hash for line in _read(paths, primary)[0]]
    return {number: hashes[number] for number in numbers if number < len(hashes)}


def _read(paths: RunPaths, primary: str) -> tuple[list[Line], str]:
    """The entries up to the first that cannot be read, and why it cannot."""
    lines: list[Line] = []
    try:
        lines.extend(DigestReader(paths, primary).read_new())
    except (DigestDamagedError, OSError) as error:
        return lines, str(error)
    return lines, ""


def check_digests(view: RunView, paths: RunPaths) -> Iterator[Damage]:
    """Digests that cannot be read, or that say other things than the raw records."""
    lines_of = {file.writer: file.lines for file in view.primary.files}
    for folder in sorted(digests_of(paths).glob("*/")):
        primary = folder.name
        if primary not in lines_of or not is_primary(primary):
            if not view.unfinished:
                yield Damage(f"digest/{primary}", None, "conflict", "no primary has this name", "one: it is foreign")
            continue
        limit = view.ledger.fences.limit(primary)
        if limit < 0:
            continue  # nothing of this primary counts
        lines, problem = _read(paths, primary)
        view.digests[primary] = [line.hash for line in lines]
        if problem:
            yield Damage(_file(primary, len(lines)), _row(len(lines)), "record", problem)
        # Entries of a superseded primary matter as far as a plan that counts was made from them.
        ends_open = view.unfinished or lines_of[primary] > limit + 1
        last = max(_cursors(view, primary), default=-1) if ends_open else len(lines)
        yield from (damage for number, damage in _Comparison(primary, view).damages(lines) if number <= last)


def _cursors(view: RunView, primary: str) -> Iterator[int]:
    """The places in a digest that trials which count were planned from."""
    for index in view.trials.values():
        try:
            places = parse_cursor(index.started.body.cursor or "")
        except RecordDamagedError:
            continue
        if primary_of(places) == primary:
            yield places[head_name(primary)]


def _file(primary: str, number: int) -> str:
    paths = RunPaths(Path())
    return str(digest_segment(paths, primary, number // SEGMENT_ENTRIES + 1))


def _row(number: int) -> int:
    return number % SEGMENT_ENTRIES + 1


Found = tuple[int, Damage]
"""The number of an entry, and its damage."""


@dataclass
class _Comparison:
    """Compares the digest of one primary with the records."""

    primary: str
    view: RunView
    _own: dict[int, TrialLedger] = field(default_factory=dict)
    """The trials that this primary issued."""
    _begun: set[int] = field(default_factory=set)
    _over: set[int] = field(default_factory=set)
    _current: dict[int, int] = field(default_factory=dict)
    """The last trial that began on a replica."""
    _heard: WitnessedEpochs = field(init=False)
    """The epochs that were witnessed, by trial."""

    def __post_init__(self) -> None:
        self._heard = self.view.primary.witnessed.epochs

    def damages(self, lines: list[Line]) -> Iterator[Found]:
        """All differences, up to the first after which the order is unknown."""
        expected: list[Entry] = [Opened(primary=self.primary), *self._earlier()]
        for line, entry in zip(lines, expected, strict=False):
            if not _same(line, entry):
                yield self._damage(line, entry)
        file = f"history/{self.primary}.jsonl"
        closings = deque(
            place.body
            for _, place in self.view.primary.events
            if isinstance(place.body, TrialClosed) and place.file == file and place.body.trial in self._own
        )
        for line in lines[len(expected) :]:
            if isinstance(line.entry, Began):
                problem = self._begin(line, line.entry)
            elif closings:
                problem = self._end(line, closings.popleft())
            else:
                problem = "no trial that this primary has closed is left"
            if problem is not None:
                yield self._damage(line, problem)
            # The entry fits no trial. Which one was meant, and in which order the next ones follow,
            # cannot be known.
            if isinstance(problem, str):
                return

    def _earlier(self) -> Iterator[Entry]:
        """The entries of all trials that primaries before this one issued."""
        start = start_of(self.primary)
        for number, trial in sorted(self.view.ledger.trials.items()):
            issued = self.view.primary.issued.get(number)
            issuer = start_of(Path(issued[0].file).stem) if issued else 0
            if issuer == start:
                self._own[number] = trial
            elif issuer < start and (trial.started is not None or trial.issued is not None):
                yield from entries_of(trial)

    def _begin(self, line: Line, entry: Began) -> Entry | str | None:
        """The entry that was expected, if it is another one; in words, if none was."""
        trial = self._own.get(entry.trial)
        if trial is None or trial.started is None or trial.trial in self._begun or trial.trial in self._over:
            return f"no start of trial {entry.trial}"
        current = self._current.get(trial.started.replica)
        if current is not None and current not in self._over:
            return f"the end of trial {current}, which its replica trained before"
        self._begun.add(entry.trial)
        self._current[trial.started.replica] = entry.trial
        expected = began_of(trial.started)
        return None if _same(line, expected) else expected

    def _end(self, line: Line, closing: TrialClosed) -> Entry | str | None:
        """Compare the end of the trial that the primary closed next."""
        trial = self._own[closing.trial]
        expected = over_of(trial, _how(closing, trial), self._heard[trial.trial])
        if not isinstance(line.entry, Over) or line.entry.trial != closing.trial:
            return f"trial {closing.trial}, which was closed next, is over: {_shown(expected)}"
        if closing.trial not in self._begun and self._was_heard(closing, trial):
            return f"the start of trial {closing.trial} before its end"
        self._over.add(closing.trial)
        return None if _same(line, expected) else expected

    def _was_heard(self, closing: TrialClosed, trial: TrialLedger) -> bool:
        """True if the primary has heard of a record behind the start of a trial."""
        index = self.view.trials.get(trial.trial)
        if index is None or index.writer != closing.writer or closing.sequence is None:
            return False
        return bool(self._heard[trial.trial]) or closing.how != "lost"

    def _damage(self, line: Line, expected: Entry | str) -> Found:
        wanted = expected if isinstance(expected, str) else _shown(expected)
        file, row = _file(self.primary, line.number), _row(line.number)
        return line.number, Damage(file, row, "conflict", f"the entry is {_shown(line.entry)}", wanted)


def _how(closing: TrialClosed, trial: TrialLedger) -> How:
    if closing.how == "completed":
        return "early_stop" if trial.ended is not None and trial.ended.body.reason == "early_stop" else "completed"
    return "failed" if closing.how == "cancelled" else closing.how


def _same(line: Line, other: Entry) -> bool:
    # By their lines: a quality that is not a number differs from itself.
    wanted = encode_entry(other)
    return line.text == wanted[:-1] or encode_entry(line.entry) == wanted


def _shown(entry: Entry) -> str:
    return encode_entry(entry).rpartition(b',"crc32"')[0].decode() + "}"
