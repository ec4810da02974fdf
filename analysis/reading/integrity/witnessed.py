"""What the primaries of a run heard of epochs, in columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from aiperf.records.columns import EPOCH, RECORD, TRIAL, Numbers, Witnesses, blocks_of, rows_of, text_of


@dataclass(frozen=True, slots=True)
class HeardEpochs:
    """The epochs that were heard of; the set of a trial is made when it is asked for."""

    rows: Numbers
    """Trial and epoch, by trial."""
    blocks: dict[int, tuple[int, int]]
    """The rows of each trial."""

    def __getitem__(self, trial: int) -> set[int]:
        begin, end = self.blocks.get(trial, (0, 0))
        return {*self.rows[begin:end, 1].tolist()}


@dataclass
class Witnessed:
    """What all primaries heard of epochs. Add everything before asking."""

    files: list[tuple[str, Witnesses]] = field(default_factory=list)
    """The primaries' files, in order, with their witnesses."""

    def add(self, file: str, heard: Witnesses) -> None:
        """Take in the next file."""
        self.files.append((file, heard))

    @cached_property
    def _by_writer(self) -> dict[str, list[tuple[int, Numbers]]]:
        """By writer of the epochs: numbers of files, and the rows of its witnesses there."""
        found: dict[str, list[tuple[int, Numbers]]] = {}
        for number, (_, heard) in enumerate(self.files):
            names, which = np.unique(heard.writers, return_inverse=True)
            order = np.argsort(which, kind="stable")
            for name, begin, end in blocks_of(which[order].astype(np.int64)):
                found.setdefault(text_of(names[name]), []).append((number, order[begin:end].astype(np.int64)))
        return found

    def writers(self) -> list[str]:
        """The writers whose epochs were heard of, by name."""
        return sorted(self._by_writer)

    def of(self, writer: str) -> Iterator[tuple[int, Witnesses]]:
        """The witnesses of a writer's epochs: the number of each primary's file, and its rows."""
        for number, rows in self._by_writer.get(writer, ()):
            yield number, self.files[number][1].only(rows)

    def records_of(self, writer: str) -> set[int]:
        """The numbers of a writer's records that were heard of."""
        return {record for _, heard in self.of(writer) for record in heard.rows[:, RECORD].tolist()}

    def epochs(self) -> HeardEpochs:
        """The epochs that were heard of, by trial."""
        rows = np.concatenate([rows_of(2), *(heard.rows[:, (TRIAL, EPOCH)] for _, heard in self.files)])
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        return HeardEpochs(rows, {trial: (begin, end) for trial, begin, end in blocks_of(rows[:, 0])})
