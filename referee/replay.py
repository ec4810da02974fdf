"""Replay: the plans of a run made again from the records that each was made from.

A plan is a pure function of the records up to its cursor, the configuration, the round, the
replica, and the memory and arithmetic of an accelerator. So architecture, parent, morphs and
hyperparameters must come out as recorded, exactly but for the last digits of a number. The run
directory is only read.
"""

import hashlib
import json
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isclose
from pathlib import Path
from typing import cast, get_args

from aiperf.config.sections.base import Precision
from aiperf.config.settings import RunConfig
from aiperf.config.space import Hyperparameters
from aiperf.errors import AiperfError, RecordDamagedError
from aiperf.records.bodies import TrialStarted
from aiperf.records.chain import hash_of
from aiperf.records.cursor import Cursor, parse_cursor
from aiperf.records.digest.entries import is_primary, primary_of
from aiperf.records.fencing import Fences, reading_order
from aiperf.records.history_files import Batch, decode_lines, read_from
from aiperf.records.record import Record
from aiperf.run_directory.manifest import read_manifest
from aiperf.run_directory.paths import RunPaths
from aiperf.wire.messages import Job
from referee.digested import EntriesUpTo, RecordedDigest
from replica.search.choices import Choices, Memory, Plan
from replica.search.knowledge import Knowledge
from replica.search.known_trials import DigestedTrials
from search_space.morphisms import morph_data

# The history list of a finished run, read again up to the cursor of any plan.

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
    # Most lines are progress, of which a search knows nothing: they are not decoded.
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
        # What was read cannot be unread: a search that has seen later records must begin anew.
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


# The replay of plans on it.

ROUNDING = 1e-12
"""Relative deviation of a hyperparameter: NumPy's exponential has another last bit on processors
with AVX-512, and a learning rate is drawn by it.
"""


@dataclass(frozen=True, slots=True)
class Difference:
    """A trial whose record is not as the replay gives it."""

    trial: int
    field: str
    recorded: str
    replayed: str

    def __str__(self) -> str:
        return f"trial {self.trial}: {self.field} is {self.recorded}, the replay gives {self.replayed}"


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The plans that were replayed, `equal` ones among them, and every difference.

    `replayable` is the number of plans with a cursor, `unchained` that of trials of versions
    without a chain, which cannot be replayed. A plan is drawn by the hash of its trial's number and
    `head`, which is the hash of the last records of all files.
    """

    checked: int
    equal: int
    differences: tuple[Difference, ...]
    replayable: int
    unchained: int
    head: str


def replay(paths: RunPaths, most: int | None, trials: Collection[int] | None = None) -> ReplayResult:
    """Replay `most` plans of a run (None: all), of some trials or of all.

    Raises RunDirectoryError if it is not a run.
    """
    config = read_manifest(paths).config
    history = RecordedHistory(paths)
    head = history.head.hash
    starts = [start for start in history.starts() if trials is None or start.body.trial in trials]
    chained = [start for start in starts if start.body.cursor is not None]
    missing = [start for start in starts if start.chained and start.body.cursor is None]
    drawn = _draw(chained, head, most)
    found = [Difference(start.body.trial, "cursor", "none", "one in every chained record") for start in missing]
    wrong = _Replay(config, paths, history).differences(drawn)
    return ReplayResult(
        checked=len(drawn) + len(missing),
        equal=len(drawn) - len({start for start, _ in wrong}),
        differences=tuple(sorted([*found, *(difference for _, difference in wrong)], key=lambda item: item.trial)),
        replayable=len(chained),
        unchained=len(starts) - len(chained) - len(missing),
        head=head,
    )


def _draw(starts: list[Start], head: str, most: int | None) -> list[Start]:
    if most is None or most >= len(starts):
        return starts
    return sorted(starts, key=lambda start: hashlib.sha256(f"{head}/{start.body.trial}".encode()).digest())[:most]


class _Replay:
    """Makes plans again, those of one replica in turn, so that its knowledge only grows."""

    def __init__(self, config: RunConfig, paths: RunPaths, history: RecordedHistory) -> None:
        self._config = config
        self._paths = paths
        self._history = history
        self._restart(None)

    def differences(self, starts: Sequence[Start]) -> list[tuple[Start, Difference]]:
        """The differences of these trials, each with its trial."""
        cursors = self._history.cursors(start.body.cursor or "" for start in starts)
        found = []
        for _, group in groupby(sorted(starts, key=_settings_of), _settings_of):
            self._restart(None)
            places = {start: cursors[start.body.cursor or ""] for start in group}
            # In the order of the cursors, so that knowledge only grows and is seldom begun anew.
            for start, cursor in sorted(places.items(), key=lambda item: (*_extent(item[1]), item[0].place)):
                found += [(start, difference) for difference in self._compare(start, cursor)]
        return found

    def _restart(self, digest: str | None) -> None:
        """Begin again with the digest of a primary; None: with raw records."""
        self._digest = digest
        self._source: RecordsUpTo | EntriesUpTo
        self._choices: Choices | None = None
        if digest is None:
            self._source = RecordsUpTo(self._history)
            self._knowledge = Knowledge(self._paths, self._source)
        else:
            self._source = EntriesUpTo(self._history.digest(digest))
            self._knowledge = Knowledge(self._paths, known=DigestedTrials(self._source, self._paths))

    def _compare(self, start: Start, cursor: Cursor | str) -> Iterator[Difference]:
        body = start.body
        if isinstance(cursor, str):
            yield Difference(body.trial, "cursor", str(body.cursor)[:200], cursor)
            return
        if cursor.hash != body.cursor_hash:
            yield Difference(body.trial, "cursor_hash", str(body.cursor_hash), cursor.hash)
        try:
            digest = primary_of(cursor.heads)
            if digest != self._digest or not self._source.advance(cursor):
                self._restart(digest)
                self._source.advance(cursor)
            self._knowledge.read()
            yield from self._misplaced(start, cursor)
            choices = self._choices_of(body)
            yield from _memory(body, choices)
            yield from _unequal(body, choices.training(_job(body, choices)))
        except Exception as error:  # records of an opponent may make any step of a plan fail
            reason = str(error) if isinstance(error, AiperfError) else f"{type(error).__name__}: {error}"
            yield Difference(body.trial, "plan", body.architecture, f"none: {reason}"[:500])

    def _misplaced(self, start: Start, cursor: Cursor) -> Iterator[Difference]:
        """A cursor is before the trial, and behind the start of the replica's trial before."""
        if self._digest is not None:
            yield from self._misplaced_in_digest(start)
            return
        place = cursor.heads.get(start.writer, (-1, ""))[0]
        if place >= start.place or self._knowledge.mentions(start.body.trial):
            yield Difference(start.body.trial, "cursor", "behind records of the trial itself", "one before it")
        elif start.before is not None and place < start.before:
            expected = f"one behind its replica's last start of a trial, number {start.before} of {start.writer}"
            yield Difference(start.body.trial, "cursor", f"behind number {place}", expected)

    def _misplaced_in_digest(self, start: Start) -> Iterator[Difference]:
        if self._knowledge.mentions(start.body.trial):
            yield Difference(start.body.trial, "cursor", "behind entries of the trial itself", "one before it")
        elif start.trial_before is not None and not self._knowledge.mentions(start.trial_before):
            expected = f"one behind its replica's last start of a trial, trial {start.trial_before}"
            yield Difference(start.body.trial, "cursor", str(start.body.cursor)[:200], expected)

    def _choices_of(self, body: TrialStarted) -> Choices:
        if self._choices is None:
            if body.precision not in get_args(Precision):
                raise ValueError(f"unknown precision {body.precision!r}")
            memory = Memory(body.memory_bytes, cast(Precision, body.precision))
            self._choices = Choices(body.replica, self._config, self._paths, memory, self._knowledge)
        return self._choices


def _settings_of(start: Start) -> tuple[int, int, str]:
    body = start.body
    return body.replica, -1 if body.memory_bytes is None else body.memory_bytes, body.precision


def _extent(cursor: Cursor | str) -> tuple[str, int]:
    """The digest of a cursor, and the number of its entries or records."""
    if isinstance(cursor, str):
        return "", 0
    # This puts the cursors of one replica in order, since the files that they are of only grow.
    return primary_of(cursor.heads) or "", sum(place for place, _ in cursor.heads.values())


def _job(body: TrialStarted, choices: Choices) -> Job:
    """The job that was planned for.

    A plan made ahead is made for trial 0, whose number is not known yet: the initial architecture
    is never its result, and is the result only for the trial that is to train it.
    """
    is_initial = body.architecture == choices.initial.hash and body.parent is None
    trial = body.trial if is_initial else 0
    # No plan depends on the job's seed, which is that of the training.
    return Job(trial=trial, round=body.round, seed=0, point=body.point, base=body.base, resumes=body.resumes)


def _memory(body: TrialStarted, choices: Choices) -> Iterator[Difference]:
    limit = choices.limits.memory_bytes
    if limit != body.memory_bytes:
        yield Difference(body.trial, "memory_bytes", str(body.memory_bytes), str(limit))


def _unequal(body: TrialStarted, plan: Plan) -> Iterator[Difference]:
    proposal = plan.proposal
    morphs = tuple(morph_data(morph) for morph in proposal.morphs)
    for field, recorded, replayed in (
        ("architecture", body.architecture, proposal.architecture.hash),
        ("parent", body.parent, proposal.parent),
        ("morphs", body.morphs, morphs),
        ("hyperparameters", body.hyperparameters, _as_recorded(plan.hyperparameters, body.hyperparameters)),
    ):
        if recorded != replayed:
            yield Difference(body.trial, field, json.dumps(recorded), json.dumps(replayed))


def _as_recorded(replayed: Hyperparameters, recorded: Mapping[str, object]) -> dict[str, object]:
    """The replayed ones, in the recorded rounding."""

    def rounded(name: str, value: object) -> object:
        was = recorded.get(name)
        near = isinstance(value, float) and isinstance(was, float) and isclose(value, was, rel_tol=ROUNDING)
        return was if near else value

    return {name: rounded(name, value) for name, value in replayed.items()}
