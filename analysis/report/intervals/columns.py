"""The beginnings of a writer's phases as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aiperf.records.columns import PHASE, PHASES, TIME, TRIAL, rows_of
from aiperf.records.entries import ReplicaLedger

DOWN = "down"

NAMES = tuple(sorted((*PHASES, DOWN)))
"""All phases. A phase in a column is its place here: codes sort as names do."""

_CODE_OF = np.array([NAMES.index(phase) for phase in PHASES], np.int64)

Column = NDArray[np.int64]


def code(phase: str) -> int:
    """The code of a phase."""
    return NAMES.index(phase)


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """A row for each beginning of a phase: UTC milliseconds, code of the phase, trial or -1."""

    times_ms: Column
    phases: Column
    trials: Column

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int]]) -> Moments:
        """The columns of some rows."""
        return cls(*np.array(rows, np.int64).reshape(-1, 3).T)

    def only(self, wanted: NDArray[np.generic]) -> Moments:
        """Some of the rows, by marks or by places."""
        return Moments(self.times_ms[wanted], self.phases[wanted], self.trials[wanted])


def joined(parts: Sequence[Moments]) -> Moments:
    """The rows of all parts, one part after another."""
    return Moments(*(np.concatenate([getattr(part, name) for part in parts]) for name in Moments.__slots__))


def moments_of(entry: ReplicaLedger, writer: str, offset_ms: int) -> Moments:
    """The beginnings of all phases that a writer of a replica recorded, on the primary's clock.

    They are in order of time, then of the phases' names and of trials.
    """
    own = entry.phases.get(writer, rows_of(7))
    found = Moments(own[:, TIME] - offset_ms, _CODE_OF[own[:, PHASE]], own[:, TRIAL])
    return found.only(np.lexsort((found.trials, found.phases, found.times_ms)))
