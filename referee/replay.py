"""Replay: the plans of a run made again from the records that each was made from.

A plan is a pure function of the records up to its cursor, the configuration, the round, the
replica, and the memory and arithmetic of an accelerator. So architecture, parent, morphs and
hyperparameters must come out as recorded, exactly but for the last digits of a number. The run
directory is only read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isclose
from typing import cast, get_args

from aiperf.config.sections.base import Precision
from aiperf.config.settings import RunConfig
from aiperf.config.space import Hyperparameters
from aiperf.errors import AiperfError
from aiperf.records.bodies import TrialStarted
from aiperf.records.cursor import Cursor
from aiperf.records.digest.positions import primary_of
from aiperf.run_directory.manifest import read_manifest
from aiperf.run_directory.paths import RunPaths
from aiperf.wire.messages import Job
from referee.digested import EntriesUpTo
from referee.recorded import RecordedHistory, RecordsUpTo, Start
from replica.search.choices import Choices, Memory, Plan
from replica.search.history.digested import DigestEvidence
from replica.search.knowledge import Knowledge
from search_space.morph_json import morph_data

SAMPLE = 8
"""Plans that are replayed unless another number is asked for."""

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


def replay(paths: RunPaths, most: int | None = SAMPLE, trials: Collection[int] | None = None) -> ReplayResult:
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
            self._knowledge = Knowledge(self._paths, evidence=DigestEvidence(self._source, self._paths))

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
    return primary_of(cursor.heads) or "", sum(place for place, _ in cursor.heads.values())


def _job(body: TrialStarted, choices: Choices) -> Job:
    """The job that was planned for.

    A plan made ahead is made for trial 0, whose number is not known yet: the initial architecture
    is never its result, and is the result only for the trial that is to train it.
    """
    is_initial = body.architecture == choices.initial.hash and body.parent is None
    trial = body.trial if is_initial else 0
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
