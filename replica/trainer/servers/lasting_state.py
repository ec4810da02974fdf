"""The memory of a parameter server, which outlives its process.

It is a file without a name in the kernel's memory, held open by the starter of the servers, so that
nothing is left when that ends. It has two states of all vectors and a log of events. An update
reads one state and writes the other, and counts with its row in the log: a server that is killed in
between has changed nothing, and one that is killed after it has lost nothing.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from msgspec.json import decode, encode

from aiperf.facts import ExchangeFacts
from replica.trainer.servers.optimisers import Vector
from replica.trainer.servers.protocol import Setting
from replica.trainer.servers.tally import Tally

MEMORY = "AIPERF_SERVER_MEMORY"
"""Variable with the number of the open file that a server's starter keeps for it."""

_HEAD = 4096
"""Bytes at the beginning, for the setting."""

_ROW = np.dtype(
    [("event", "<i4"), ("group", "<i4"), ("number", "<i8"), ("epoch", "<i8"), ("images", "<i8"), ("staleness", "<i8")]
)


class Event(IntEnum):
    """Kinds of events."""

    START = 1
    """A process has taken the memory over: the first row of a new training is one."""
    UPDATE = 2
    LEAVE = 3
    """A group is lost: what has a smaller number is not applied any more."""
    STOP = 4


class Row(NamedTuple):
    """One event; `number` is that of the question that brought it."""

    event: int
    group: int = 0
    number: int = 0
    epoch: int = 0
    images: int = 0
    staleness: int = 0


class Memory:
    """Setting, states and log of one server."""

    def __init__(self, file: int) -> None:
        """`file`: the number of an open file, empty or left by a server."""
        self._file = file
        self.setting: Setting | None = None
        """The setting of the training; None before the first."""
        self.states: tuple[dict[str, Vector], dict[str, Vector]] = ({}, {})
        """The vectors by name, after an even and after an odd number of updates."""
        self._log = self._end = 0
        """The place where the log begins, and that of its next row."""
        self._attach()

    @classmethod
    def given(cls, environment: Mapping[str, str] = os.environ) -> Memory:
        """The memory that the starter keeps; a new one if there is no starter."""
        kept = environment.get(MEMORY)
        return cls(new_memory() if kept is None else int(kept))

    def _attach(self) -> None:
        """Take over what a server has left, if it was set up."""
        text = os.pread(self._file, _HEAD, 0)
        if len(text) < _HEAD:
            return
        setting = decode(text.rstrip(), type=Setting)
        log = _HEAD + 2 * 4 * len(setting.recipe.names) * setting.size
        # The first row is written when all vectors are (`Server._begin`): without one, the server
        # was killed while it was set up, and the root asks for that again.
        rows = (os.fstat(self._file).st_size - log) // _ROW.itemsize
        if rows > 0:
            self._map(setting, log)
            self._end = log + rows * _ROW.itemsize

    def _map(self, setting: Setting, log: int) -> None:
        # The log behind the vectors is not mapped: it grows by writes, and a mapping keeps its
        # length.
        mapped = mmap.mmap(self._file, log)
        shape = (2, len(setting.recipe.names), setting.size)
        vectors = np.ndarray(shape, np.float32, mapped, offset=_HEAD)
        one, other = (dict(zip(setting.recipe.names, state, strict=True)) for state in vectors)
        self.setting, self.states, self._log, self._end = setting, (one, other), log, log

    def set_up(self, setting: Setting, vectors: Mapping[str, Vector]) -> None:
        """Begin a training with these vectors, by the names of the setting."""
        log = _HEAD + 2 * 4 * len(setting.recipe.names) * setting.size
        # To nothing first, so that what is lengthened afterwards is zeros, without a row.
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, encode(setting).ljust(_HEAD), 0)
        os.ftruncate(self._file, log)
        self._map(setting, log)
        for name, vector in self.states[0].items():
            vector[:] = vectors[name]

    def append(self, row: Row) -> None:
        """Add an event to the log: from now on it has happened."""
        # One system call, and not a store into mapped memory, which a kill could cut in two.
        self._end += os.pwrite(self._file, np.array([row], _ROW).tobytes(), self._end)

    def rows(self) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        """All events, in their order."""
        return np.frombuffer(os.pread(self._file, self._end - self._log, self._log), _ROW)

    def applied(self, group: int, after: int) -> list[ExchangeFacts]:
        """The updates of a group in each of its epochs after this one, without times."""
        rows = self.rows()
        own = rows[(rows["event"] == Event.UPDATE) & (rows["group"] == group) & (rows["epoch"] > after)]
        found = []
        for epoch in np.unique(own["epoch"]).tolist():
            part = own[own["epoch"] == epoch]
            tally = Tally(epoch, None, len(part), int(part["images"].sum()), np.bincount(part["staleness"]).tolist())
            found.append(tally.facts(group, 0))
        return found

    def close(self) -> None:
        """Give up the file; what maps it goes with the process."""
        os.close(self._file)


def new_memory() -> int:
    """Make an empty file in the kernel's memory; give its number."""
    return os.memfd_create("aiperf-server")
