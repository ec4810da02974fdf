"""Completed epochs as columns: a long run has hundreds of thousands.

An epoch is an object only while it is asked for. Those that say more than a row has, such as a
quality that is not an accuracy, are for the decoder of single lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np
from msgspec.json import Decoder
from numpy.typing import NDArray

from aiperf.facts import UNCLASSIFIED, Stamped
from aiperf.records.bodies import EpochCompleted

PLACE, TIME, MONOTONIC, TRIAL, EPOCH, TRAINED, EVALUATED, CORRECT = range(8)
"""The columns of whole numbers."""

_WHOLE = ("trial", "epoch", "images_trained", "images_evaluated")
_LOSSES = ("loss", "validation_loss", "learning_rate")
_HASHES = ("evidence", "weights")
_HASH_LENGTH = 64
_DECODER = Decoder(EpochCompleted)


@dataclass(frozen=True, slots=True, eq=False)
class EpochColumns:
    """A row for each epoch, in the order of its file. Times are on the clock of its writer.

    `whole`: place of the line from 0, time, monotonic clock, trial, epoch, images trained and
    evaluated, correct ones. `losses`: loss, validation loss, learning rate. `hashes`: of the rows
    and of the weights, empty if there are none.
    """

    whole: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 8), np.int64))
    losses: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 3), np.float64))
    hashes: NDArray[np.bytes_] = field(default_factory=lambda: np.zeros((0, 2), "S1"))

    def __len__(self) -> int:
        return len(self.whole)

    def between(self, begin: int, end: int) -> EpochColumns:
        """Some rows that follow each other. They share the memory of all."""
        return EpochColumns(self.whole[begin:end], self.losses[begin:end], self.hashes[begin:end])

    def only(self, wanted: NDArray[np.bool_]) -> EpochColumns:
        """Some rows, by marks."""
        return EpochColumns(self.whole[wanted], self.losses[wanted], self.hashes[wanted])

    def column(self, place: int) -> NDArray[np.int64]:
        """One of the columns of whole numbers."""
        return self.whole[:, place]

    def body(self, row: int) -> EpochCompleted:
        """The record of a row."""
        *_, trial, epoch, trained, evaluated, correct = self.whole[row].tolist()
        loss, validation_loss, learning_rate = self.losses[row].tolist()
        evidence, weights = (text.decode() or None for text in self.hashes[row].tolist())
        return EpochCompleted(
            trial=trial, epoch=epoch, images_trained=trained, images_evaluated=evaluated,
            correct=None if correct == UNCLASSIFIED else correct, loss=loss, validation_loss=validation_loss,
            learning_rate=learning_rate, evidence=evidence, weights=weights,
        )  # fmt: skip

    def stamped(self, row: int) -> Stamped[EpochCompleted]:
        """The record of a row, and its time."""
        return Stamped(int(self.whole[row, TIME]), self.body(row))


def epoch_columns(documents: Sequence[bytes], heads: NDArray[np.int64]) -> EpochColumns | None:
    """The columns of the data of some lines; None if one says more than a row has.

    `heads` has a row for each: place of its line, time, and monotonic clock.
    """
    try:
        found = _DECODER.decode_lines(b"\n".join(documents)) if documents else []
    except (ValueError, RecursionError):
        return None
    if len(found) != len(documents) or any(any(value is not None for value in _RARE(epoch)) for epoch in found):
        return None
    correct = [UNCLASSIFIED if epoch.correct is None else epoch.correct for epoch in found]
    hashes = [[getattr(epoch, name) or "" for epoch in found] for name in _HASHES]
    texts = "".join(text for own in hashes for text in own)
    if (
        not texts.isascii()
        or any(len(text) not in (0, _HASH_LENGTH) for own in hashes for text in own)
        or "\0" in texts
    ):
        return None
    whole = [np.array(list(map(attrgetter(name), found)), np.int64) for name in _WHOLE]
    losses = [np.array(list(map(attrgetter(name), found)), np.float64) for name in _LOSSES]
    return EpochColumns(
        np.column_stack([heads, *whole, np.array(correct, np.int64)]), np.column_stack(losses),
        np.array(hashes, f"S{_HASH_LENGTH if texts else 1}").T.copy(),
    )  # fmt: skip


_RARE = attrgetter("measured_quality", "measures", "training_measures")


def blocks_of(values: NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """Each value of a column with the first row of its block, and the row behind that."""
    if len(values):
        begins = np.flatnonzero(np.append(True, np.diff(values) != 0)).tolist()
        for begin, end in pairwise([*begins, len(values)]):
            yield int(values[begin]), begin, end


class TrialEpochs(Mapping[int, Stamped[EpochCompleted]]):
    """The completed epochs of a trial by number, in the order in which they were recorded.

    They are objects, or all of them rows of a file. The numbers of rows follow each other.
    """

    __slots__ = ("_columns", "_objects")

    def __init__(self, objects: Mapping[int, Stamped[EpochCompleted]] | None = None) -> None:
        self._objects: dict[int, Stamped[EpochCompleted]] = dict(objects or {})
        self._columns: EpochColumns | None = None

    @property
    def columns(self) -> EpochColumns | None:
        """The rows; None if the epochs are objects, or if there are none."""
        return self._columns

    def take(self, columns: EpochColumns) -> None:
        """Become these epochs; there were none."""
        assert not self._objects and self._columns is None
        self._columns = columns

    def setdefault(self, number: int, epoch: Stamped[EpochCompleted]) -> Stamped[EpochCompleted]:
        """The epoch of that number, which is the given one if there was none."""
        if self._columns is not None:
            self._objects, self._columns = dict(self.items()), None
        return self._objects.setdefault(number, epoch)

    def accuracies(self) -> Iterable[tuple[int, float | None]]:
        """The number and the accuracy of each, without objects for rows."""
        if self._columns is None:
            return [(number, epoch.body.accuracy) for number, epoch in self._objects.items()]
        return zip(self, accuracies_of(self._columns.whole), strict=True)

    def qualities(self) -> dict[int, float | None]:
        """The quality of each by number."""
        if self._columns is None:
            return {number: epoch.body.quality for number, epoch in self._objects.items()}
        return dict(self.accuracies())

    @property
    def _first(self) -> int:
        return 0 if self._columns is None else int(self._columns.whole[0, EPOCH])

    def __getitem__(self, number: int) -> Stamped[EpochCompleted]:
        if self._columns is None:
            return self._objects[number]
        row = number - self._first
        if not 0 <= row < len(self._columns):
            raise KeyError(number)
        return self._columns.stamped(row)

    def __contains__(self, number: object) -> bool:
        if self._columns is None:
            return number in self._objects
        return isinstance(number, int) and 0 <= number - self._first < len(self._columns)

    def __iter__(self) -> Iterator[int]:
        if self._columns is None:
            return iter(self._objects)
        return iter(range(self._first, self._first + len(self._columns)))

    def __len__(self) -> int:
        return len(self._objects) if self._columns is None else len(self._columns)

    def __repr__(self) -> str:
        return f"TrialEpochs({dict(self)!r})"


def accuracies_of(whole: NDArray[np.int64]) -> list[float | None]:
    """The accuracy of each row, as `EpochFacts.accuracy`."""
    pairs: list[list[Any]] = whole[:, (CORRECT, EVALUATED)].tolist()
    return [correct / evaluated if correct >= 0 and evaluated > 0 else None for correct, evaluated in pairs]
