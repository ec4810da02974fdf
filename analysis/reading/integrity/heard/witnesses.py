"""All witnesses of a run by writer, as objects only if a check asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from aiperf.records.bodies import EpochWitnessed
from aiperf.records.decoding.epochs import blocks_of
from analysis.reading.columns import Numbers
from analysis.reading.integrity.heard.columns import WitnessColumns, writer_name
from analysis.reading.integrity.heard.placed import Placed

Witnessed = dict[int, list[Placed[EpochWitnessed]]]
"""By sequence number, more than one only if the records are damaged."""


@dataclass(frozen=True, slots=True)
class HeardEpochs:
    """The epochs that were heard of; the set of a trial is made when it is asked for."""

    objects: dict[int, set[int]]
    rows: Numbers
    """Trial and epoch of those in columns, by trial."""
    blocks: dict[int, tuple[int, int]]
    """The rows of each trial."""

    def __getitem__(self, trial: int) -> set[int]:
        begin, end = self.blocks.get(trial, (0, 0))
        return {*self.objects.get(trial, ()), *self.rows[begin:end, 1].tolist()}


@dataclass
class Witnesses:
    """What all primaries heard of epochs. Add everything before asking."""

    files: list[tuple[str, WitnessColumns]] = field(default_factory=list)
    """The primaries' files, in order, with the witnesses that are in columns."""
    _objects: dict[str, list[tuple[int, Placed[EpochWitnessed]]]] = field(default_factory=dict)
    """Others, by writer, with the place of their file."""

    def begin(self, file: str, columns: WitnessColumns) -> None:
        """Begin with the next file."""
        self.files.append((file, columns))

    def add(self, place: Placed[EpochWitnessed]) -> None:
        """Take in a record of the file that was begun last."""
        self._objects.setdefault(place.body.writer, []).append((len(self.files) - 1, place))

    @cached_property
    def _rows(self) -> dict[str, list[tuple[int, WitnessColumns]]]:
        """The rows of each writer, with the place of their file."""
        found: dict[str, list[tuple[int, WitnessColumns]]] = {}
        for number, (_, columns) in enumerate(self.files):
            keys = columns.rows[:, 5:7]
            order = np.lexsort((columns.rows[:, 0], keys[:, 1], keys[:, 0]))
            ends = np.flatnonzero(np.append((np.diff(keys[order], axis=0) != 0).any(axis=1), len(keys) > 0)) + 1
            for own in np.split(order, ends)[:-1]:
                found.setdefault(writer_name(*keys[own[0]].tolist()), []).append((number, columns.only(own)))
        return found

    def writers(self) -> list[str]:
        """The writers whose epochs were heard of, by name."""
        return sorted({*self._rows, *self._objects})

    def columns_of(self, writer: str) -> WitnessColumns | None:
        """The witnesses of a writer by their lines, if all are in the columns of one file."""
        own = self._rows.get(writer, [])
        return own[0][1] if len(own) == 1 and writer not in self._objects else None

    def sequences(self, writer: str) -> set[int]:
        """The numbers of a writer's records that were heard of."""
        of_objects = {place.body.sequence for _, place in self._objects.get(writer, ())}
        return of_objects.union(*(columns.rows[:, 7].tolist() for _, columns in self._rows.get(writer, ())))

    def of(self, writer: str) -> Witnessed:
        """The witnesses of a writer."""
        every = list(self._objects.get(writer, ()))
        for number, columns in self._rows.get(writer, ()):
            file = self.files[number][0]
            for place, (line, time_ms) in enumerate(columns.rows[:, :2].tolist()):
                every.append((number, Placed(file, line + 1, line, time_ms, columns.body(place))))
        found: Witnessed = {}
        for _, placed in sorted(every, key=lambda item: (item[0], item[1].line)):
            found.setdefault(placed.body.sequence, []).append(placed)
        return found

    def epochs(self) -> HeardEpochs:
        """The epochs that were heard of, by trial."""
        objects: dict[int, set[int]] = {}
        for place in self.objects():
            objects.setdefault(place.body.trial, set()).add(place.body.epoch)
        rows = np.concatenate([np.zeros((0, 2), np.int64), *(columns.rows[:, 3:5] for _, columns in self.files)])
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        return HeardEpochs(objects, rows, {trial: (begin, end) for trial, begin, end in blocks_of(rows[:, 0])})

    def objects(self) -> Iterator[Placed[EpochWitnessed]]:
        """Those that are not in columns."""
        for own in self._objects.values():
            yield from (place for _, place in own)
