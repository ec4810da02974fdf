"""The witnesses of epochs in a primary's file as columns: half of the records of a long run."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from aiperf.records.bodies import EpochWitnessed
from analysis.reading.columns import Marks, Numbers

Digests = NDArray[np.bytes_]


@dataclass(frozen=True, slots=True)
class WitnessColumns:
    """A row for each witness: place of its line from 0, time, monotonic clock, trial, epoch,
    replica, start of the replica, and sequence number. `digests` are of the records that they name.
    """

    rows: Numbers = field(default_factory=lambda: np.zeros((0, 8), np.int64))
    digests: Digests = field(default_factory=lambda: np.zeros(0, "S64"))

    def __len__(self) -> int:
        return len(self.rows)

    def only(self, wanted: Marks | Numbers) -> WitnessColumns:
        """Some of the rows."""
        return WitnessColumns(self.rows[wanted], self.digests[wanted])

    def body(self, place: int) -> EpochWitnessed:
        """The record of a row."""
        *_, trial, epoch, replica, start, sequence = self.rows[place].tolist()
        return EpochWitnessed(
            trial=trial, epoch=epoch, writer=writer_name(replica, start), sequence=sequence,
            digest=self.digests[place].decode(),
        )  # fmt: skip


def writer_name(replica: int, start: int) -> str:
    """The name of a replica's writer."""
    return f"replica-{replica:04d}-{start}"
