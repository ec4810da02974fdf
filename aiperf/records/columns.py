"""The most frequent records as columns: a row of numbers each, an object only on demand.

A long run has millions of reports of progress and beginnings of phases, and hundreds of thousands
of epochs and of their witnesses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isnan
from operator import attrgetter
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from aiperf.facts import UNCLASSIFIED, Stamped
from aiperf.records.bodies import AnyBody, Body, EpochCompleted, EpochWitnessed, PhaseBegan, ProgressMade
from aiperf.wire.messages import Phase

PHASES: tuple[str, ...] = get_args(Phase)

PLACE, SEQUENCE, TIME, MONOTONIC, TRIAL, EPOCH, TRAINED, EVALUATED, CORRECT, CORRECT_TRAINED = range(10)
"""The columns of epochs, and all but the last two of reports of progress: place of the line from 0,
sequence number, UTC and monotonic milliseconds of the writer, and what the record says.
"""

REPLICA, PHASE = 5, 6
"""Further columns of beginnings of phases, behind a trial that is -1 between trials; `PHASE` is a
place in `PHASES`.
"""

RECORD = 6
"""Column of a witness behind the epoch: the sequence number of the epoch's record."""

Numbers = NDArray[np.int64]
Marks = NDArray[np.bool_]

_MEASURED = ("loss", "validation_loss", "learning_rate", "input_s", "exchange_s")
INPUT, EXCHANGE = 3, 4
"""Columns of the seconds of waiting for images, and of all-reduce."""

_FURTHER = attrgetter(
    "measured_quality",
    "measures",
    "training_measures",
    "state",
    "resumed",
    "test_images",
    "test_measures",
    "sampled_images",
    "compiled",
)
_NOTHING = (None,) * 9  # what `_FURTHER` gives of most epochs


def places_of(marks: Marks) -> list[int]:
    """The rows that are marked."""
    found: list[int] = np.flatnonzero(marks).tolist()
    return found


def rows_of(width: int) -> Numbers:
    """Make a table without rows."""
    return np.zeros((0, width), np.int64)


def texts(values: Sequence[str]) -> NDArray[np.bytes_]:
    """Texts as bytes, such as hashes: an array of as many bytes each as the longest has."""
    # JSON can spell half of a surrogate pair (\ud800), which UTF-8 refuses: the name in a forged
    # record must reach the checks instead of ending the report.
    return np.array([value.encode(errors="surrogatepass") for value in values], np.bytes_).reshape(len(values))


def text_of(value: bytes) -> str:
    """A text of such an array."""
    return value.decode(errors="surrogatepass")


@dataclass(frozen=True, slots=True, eq=False)
class Epochs:
    """Completed epochs, a row each.

    `measured`: loss, validation loss, learning rate, seconds of waiting for images (NaN: not
    measured). `hashes`: of the rows of its steps and of its
    weights, empty if there are none. `further`: a quality that is not an accuracy, the measures
    of a scientific workload, the hashes of states, and what is compiled, or None.
    """

    whole: Numbers = field(default_factory=lambda: rows_of(10))
    measured: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, len(_MEASURED))))
    hashes: NDArray[np.bytes_] = field(default_factory=lambda: np.zeros((0, 2), "S1"))
    further: NDArray[Any] = field(default_factory=lambda: np.zeros(0, object))

    def __len__(self) -> int:
        return len(self.whole)

    def only(self, wanted: Marks | Numbers | slice) -> Epochs:
        """Some of the rows, by marks or by places."""
        return Epochs(self.whole[wanted], self.measured[wanted], self.hashes[wanted], self.further[wanted])

    def column(self, number: int) -> Numbers:
        """One of the columns of whole numbers."""
        return self.whole[:, number]

    def body(self, row: int) -> EpochCompleted:
        """The record of a row."""
        trial, epoch, trained, evaluated, *right = self.whole[row, TRIAL:].tolist()
        correct, correct_trained = (None if value == UNCLASSIFIED else value for value in right)
        loss, validation_loss, learning_rate, *spent = self.measured[row].tolist()
        evidence, weights = (text_of(value) or None for value in self.hashes[row].tolist())
        quality, measures, training_measures, state, resumed, *tested = self.further[row] or _NOTHING
        return EpochCompleted(
            trial=trial,
            epoch=epoch,
            images_trained=trained,
            images_evaluated=evaluated,
            correct=correct,
            correct_trained=correct_trained,
            loss=loss,
            validation_loss=validation_loss,
            learning_rate=learning_rate,
            measured_quality=quality,
            evidence=evidence,
            measures=measures,
            training_measures=training_measures,
            weights=weights,
            state=state,
            resumed=resumed,
            input_s=None if isnan(spent[0]) else spent[0],
            exchange_s=None if isnan(spent[1]) else spent[1],
            test_images=tested[0],
            test_measures=tested[1],
            sampled_images=tested[2],
            compiled=tested[3],
        )

    def stamped(self, row: int) -> Stamped[EpochCompleted]:
        """The record of a row, and its time."""
        return Stamped(int(self.whole[row, TIME]), self.body(row))

    def accuracies(self) -> list[float | None]:
        """The accuracy of each row, as `EpochFacts.accuracy`."""
        pairs: list[list[int]] = self.whole[:, (CORRECT, EVALUATED)].tolist()
        return [correct / evaluated if correct >= 0 and evaluated > 0 else None for correct, evaluated in pairs]

    def qualities(self) -> list[float | None]:
        """The quality of each row, as `EpochFacts.quality`."""
        found = self.accuracies()
        for row in places_of(self.further != None):  # noqa: E711  # of every element
            found[row] = found[row] if self.further[row][0] is None else self.further[row][0]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Witnesses:
    """A primary's witnesses of epochs: numbers, the writers of the records and their hashes."""

    rows: Numbers = field(default_factory=lambda: rows_of(7))
    writers: NDArray[np.bytes_] = field(default_factory=lambda: np.zeros(0, "S1"))
    digests: NDArray[np.bytes_] = field(default_factory=lambda: np.zeros(0, "S1"))

    def __len__(self) -> int:
        return len(self.rows)

    def only(self, wanted: Marks | Numbers | slice) -> Witnesses:
        """Some of the rows, by marks or by places."""
        return Witnesses(self.rows[wanted], self.writers[wanted], self.digests[wanted])


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The frequent records of a file, or of a part of it, each kind in the order of the lines."""

    phases: Numbers = field(default_factory=lambda: rows_of(7))
    progress: Numbers = field(default_factory=lambda: rows_of(8))
    witnesses: Witnesses = field(default_factory=Witnesses)
    epochs: Epochs = field(default_factory=Epochs)

    def tables(self) -> tuple[Numbers, ...]:
        """The numbers of each kind."""
        return self.phases, self.progress, self.witnesses.rows, self.epochs.whole

    def only(self, wanted: Callable[[Numbers], Marks]) -> Columns:
        """The rows that are wanted, by a function of the numbers of a kind."""
        return Columns(
            self.phases[wanted(self.phases)],
            self.progress[wanted(self.progress)],
            self.witnesses.only(wanted(self.witnesses.rows)),
            self.epochs.only(wanted(self.epochs.whole)),
        )


FREQUENT = (PhaseBegan, ProgressMade, EpochWitnessed, EpochCompleted)
"""The kinds of `Columns`."""


def columns_of(bodies: Sequence[AnyBody], heads: Numbers) -> Columns:
    """The frequent ones of some bodies. `heads` has a row for each body: the first four columns."""
    kinds: dict[type[Body], list[int]] = {kind: [] for kind in FREQUENT}
    for place, body in enumerate(bodies):
        if (rows := kinds.get(type(body))) is not None:
            rows.append(place)
    phases, reports, witnessed, done = ([bodies[place] for place in kinds[kind]] for kind in FREQUENT)  # type: list[Any], list[Any], list[Any], list[Any]
    at = [heads[kinds[kind]] for kind in FREQUENT]
    codes = {phase: code for code, phase in enumerate(PHASES)}
    # Whole numbers have no NaN, so a missing one is a number that no record can have.
    trials = np.array([-1 if body.trial is None else body.trial for body in phases], np.int64)
    names = np.array([codes[body.phase] for body in phases], np.int64)
    right = [
        [UNCLASSIFIED if value is None else value for value in map(attrgetter(name), done)]
        for name in ("correct", "correct_trained")
    ]
    images = ("trial", "epoch", "images_trained", "images_evaluated")
    # `np.array` would make a table of two dimensions of tuples with equal lengths.
    further = np.empty(len(done), object)
    further[:] = [None if (own := _FURTHER(body)) == _NOTHING else own for body in done]
    hashes = texts([value or "" for body in done for value in (body.evidence, body.weights)])
    return Columns(
        np.column_stack([at[0], trials, *numbers(phases, "replica"), names]),
        np.column_stack([at[1], *numbers(reports, *images)]),
        Witnesses(
            np.column_stack([at[2], *numbers(witnessed, "trial", "epoch", "sequence")]),
            texts([body.writer for body in witnessed]),
            texts([body.digest for body in witnessed]),
        ),
        Epochs(
            np.column_stack([at[3], *numbers(done, *images), *(np.array(values, np.int64) for values in right)]),
            np.column_stack([np.array(list(map(attrgetter(name), done)), np.float64) for name in _MEASURED]),
            hashes.reshape(-1, 2),
            further,
        ),
    )


def numbers(objects: Sequence[Any], *names: str) -> Iterator[Numbers]:
    """Yield a column of each of these whole-numbered fields."""
    for name in names:
        yield np.fromiter(map(attrgetter(name), objects), np.int64, len(objects))


def joined(parts: Sequence[Epochs]) -> Epochs:
    """The epochs of all parts, one part after another."""
    return Epochs(*(np.concatenate([getattr(part, name) for part in parts]) for name in Epochs.__slots__))


def blocks_of(values: Numbers) -> Iterator[tuple[int, int, int]]:
    """Each value of a column with the first row of its block, and the row behind that."""
    # Blocks are runs of equal neighbours: a caller that wants one block for each value sorts first.
    if len(values):
        begins = np.flatnonzero(np.append(True, np.diff(values) != 0)).tolist()
        for begin, end in pairwise([*begins, len(values)]):
            yield int(values[begin]), begin, end


class TrialEpochs(Mapping[int, Stamped[EpochCompleted]]):
    """The completed epochs of a trial by number, in the order in which they were recorded."""

    __slots__ = ("rows",)

    def __init__(self, rows: Epochs | None = None) -> None:
        self.rows = Epochs() if rows is None else rows

    def take(self, further: Epochs) -> list[int]:
        """Add epochs whose numbers are new; the rows of `further` that contradict a known one."""
        every = joined([self.rows, further]) if len(self.rows) else further
        # `np.unique` gives the first row of each number, and known rows are in front: they win.
        numbers, first, known = np.unique(every.column(EPOCH), return_index=True, return_inverse=True)
        if len(numbers) == len(every):
            self.rows = every
            return []
        # An equal repetition contradicts nothing. Objects are made of these few rows only.
        again = places_of(first[known] != np.arange(len(every)))
        conflicts = [row for row in again if every.body(row) != every.body(int(first[known[row]]))]
        first_new = len(every) - len(further)
        # `np.unique` has sorted by number: the order of the lines again.
        self.rows = every.only(np.sort(first))
        return [row - first_new for row in conflicts]

    def qualities(self) -> dict[int, float | None]:
        """The quality of each by number."""
        return dict(zip(self, self.rows.qualities(), strict=True))

    def _row(self, number: object) -> int | None:
        found = places_of(self.rows.column(EPOCH) == number) if isinstance(number, int) else []
        return found[0] if found else None

    def __getitem__(self, number: int) -> Stamped[EpochCompleted]:
        row = self._row(number)
        if row is None:
            raise KeyError(number)
        return self.rows.stamped(row)

    def __contains__(self, number: object) -> bool:
        return self._row(number) is not None

    def __iter__(self) -> Iterator[int]:
        numbers: list[int] = self.rows.column(EPOCH).tolist()
        return iter(numbers)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"TrialEpochs({dict(self)!r})"


def moments_of(phases: Numbers) -> Iterator[tuple[int, str, int | None]]:
    """UTC milliseconds on the writer's clock, phase and trial of each beginning of a phase."""
    for time_ms, trial, phase in phases[:, (TIME, TRIAL, PHASE)].tolist():
        yield time_ms, PHASES[phase], None if trial < 0 else trial
