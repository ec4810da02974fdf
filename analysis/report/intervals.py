"""Phases of replicas in columns: their beginnings, and the spans between these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aiperf.records.columns import PHASE, PHASES, SEQUENCE, TIME, TRIAL, rows_of
from aiperf.records.entries import ReplicaLedger

DOWN = "down"

NAMES = (*PHASES, DOWN)
"""All phases. A phase in a column is its place here, as in `aiperf.records.columns`."""

Column = NDArray[np.int64]


def code(phase: str) -> int:
    """The code of a phase."""
    return NAMES.index(phase)


@dataclass(frozen=True, slots=True, eq=False)
class PhaseStarts:
    """A row for each beginning of a phase: UTC milliseconds, code of the phase, trial or -1."""

    times_ms: Column
    phases: Column
    trials: Column

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int]]) -> PhaseStarts:
        """The columns of some rows."""
        return cls(*np.array(rows, np.int64).reshape(-1, 3).T)

    def only(self, wanted: NDArray[np.generic]) -> PhaseStarts:
        """Some of the rows, by marks or by places."""
        return PhaseStarts(self.times_ms[wanted], self.phases[wanted], self.trials[wanted])


def joined(parts: Sequence[PhaseStarts]) -> PhaseStarts:
    """The rows of all parts, one part after another."""
    return PhaseStarts(*(np.concatenate([getattr(part, name) for part in parts]) for name in PhaseStarts.__slots__))


def moments_of(entry: ReplicaLedger, writer: str, offset_ms: int) -> PhaseStarts:
    """The beginnings of all phases that a writer of a replica recorded, on the primary's clock.

    They are in order of time. Of several in one millisecond, the last that was written is the phase
    that follows: a search that takes no time gives way to the build after it.
    """
    own = entry.phases.get(writer, rows_of(7))
    own = own[np.lexsort((own[:, SEQUENCE], own[:, TIME]))]
    return PhaseStarts(own[:, TIME] - offset_ms, own[:, PHASE], own[:, TRIAL])


Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Span:
    """A replica in one phase, in seconds after the run's start. `trial` is None between trials."""

    phase: str
    trial: int | None
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Phases that follow each other: a row for each, as `Span`. Trials are 0 between trials."""

    phases: Column
    trials: Column
    begins_s: Seconds
    ends_s: Seconds

    @classmethod
    def between(cls, moments: PhaseStarts, start_ms: int, end_ms: int) -> Spans:
        """The phases from each moment to the next one, as far as they are within a run."""
        begins = np.maximum(moments.times_ms[:-1], start_ms)
        ends = np.minimum(moments.times_ms[1:], end_ms)
        kept = ends > begins
        return cls(
            moments.phases[:-1][kept],
            np.maximum(moments.trials[:-1][kept], 0),
            (begins[kept] - start_ms) / 1000,
            (ends[kept] - start_ms) / 1000,
        )

    def only(self, wanted: NDArray[np.bool_]) -> Spans:
        """Some of the rows."""
        return Spans(self.phases[wanted], self.trials[wanted], self.begins_s[wanted], self.ends_s[wanted])

    def within(self, begin_s: float, end_s: float) -> Spans:
        """The rows as far as they are between two moments."""
        begins, ends = np.maximum(self.begins_s, begin_s), np.minimum(self.ends_s, end_s)
        kept = ends > begins
        return Spans(self.phases[kept], self.trials[kept], begins[kept], ends[kept])

    def of(self, *phases: str) -> Spans:
        """The rows of some phases."""
        return self.only(np.isin(self.phases, [code(phase) for phase in phases]))

    def by_phase(self) -> Iterator[tuple[str, Spans]]:
        """The rows of each phase, in the order in which the phases occur first."""
        codes, first = np.unique(self.phases, return_index=True)
        for own in codes[np.argsort(first)].tolist():
            yield NAMES[own], self.only(self.phases == own)

    def lengths_s(self) -> list[float]:
        """The length of each."""
        lengths: list[float] = (self.ends_s - self.begins_s).tolist()
        return lengths

    def total_s(self) -> float:
        """The sum of all lengths: ends and beginnings are added up in their order."""
        steps = np.column_stack([self.ends_s, -self.begins_s]).ravel()
        return float(np.add.accumulate(steps)[-1]) if len(steps) else 0.0

    def __iter__(self) -> Iterator[Span]:
        columns = (self.phases, self.trials, self.begins_s, self.ends_s)
        for phase, trial, begin_s, end_s in zip(*(column.tolist() for column in columns), strict=True):
            yield Span(NAMES[phase], trial or None, begin_s, end_s)

    def __len__(self) -> int:
        return len(self.phases)
