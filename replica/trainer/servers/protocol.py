"""Messages between the roots of the groups and the parameter servers.

A message with values is a float32 vector with a header of 8 elements at its end, whose bits are the
fields of `HEADER`: all vectors of one server travel as one message. Anything else is JSON.

Processes are numbered: the roots by their groups from 0, then the servers, then the starter of the
groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.json import decode, encode
from numpy.typing import NDArray

from replica.trainer.servers.optimisers import Vector, Vectors
from replica.trainer.servers.shard import Recipe

HEADER = np.dtype(
    [("version", "<i8"), ("images", "<i8"), ("rate", "<f4"), ("staleness", "<i4"), ("stopped", "<i4"), ("epoch", "<i4")]
)
"""Header of a message with values.

`version` is that of the values that a gradient was computed on, or of those that are sent; `images`
are those of a gradient, or of all updates; `stopped` is 1 if the training has reached its target;
`epoch` is that of a gradient's group.
"""

HEADER_VALUES = HEADER.itemsize // 4


class Tag(IntEnum):
    """Kinds of messages; an answer has the tag and the number of its question."""

    SET = 1
    """Root 0 to a server: `Setting`, and its vectors; the answer is empty."""
    GRADIENT = 3
    """A root to a server, and back: a gradient, and the new values."""
    VALUES = 4
    """A root asks a server for its present values."""
    AVERAGE = 5
    """A root asks a server for the moving average of its values."""
    STATE = 6
    """Root 0 asks a server for its `Setting` as of now, and its vectors."""
    REPORT = 7
    """Root 0 asks a server for its `Work`."""
    STOP = 8
    """Root 0 to a server: its next answer to every group says that the training ends; the answer
    is empty."""
    END = 9
    """Root 0 to every other rank: end."""
    BEGIN = 10
    """Root 0 to another root: a message of the agent, or the state that a training starts from."""
    GATHERED = 11
    """A root to root 0: the texts of its group."""
    EXCHANGED = 12
    """A root to root 0: the `ExchangeFacts` of an epoch."""
    HERE = 13
    """A root to root 0: it can be reached from now on."""
    LOST = 14
    """The starter to root 0: a group has ended before its training (`Lost`)."""
    LEAVE = 15
    """Root 0 to a server: `Left`; from the answer on nothing of it is applied. The answer has what
    was, in each of its epochs after one (`ExchangeFacts`)."""
    HOLD = 2
    """Root 0 to a server: gradients are applied, and not answered until RELEASE. The answer has the
    number of the last gradient of each group that is not lost."""
    BEGUN = 16
    """Root 0 to the starter: the training has begun, which goes on without a lost group."""
    RELEASE = 17
    """Root 0 to a server: answer what was held back; the answer to this is empty."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message that can be taken from a mailbox."""

    source: int
    tag: int
    number: int = 0
    """Number of the question that this is, or that it answers; 0 of other messages."""


class Setting(Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a server, apart from its vectors, which follow in one message."""

    recipe: Recipe
    size: int
    """Number of values of each vector."""
    version: int = 0

    def message(self, vectors: Vectors) -> bytes:
        """The message with these vectors: this as a line of JSON, then all float32."""
        return b"\n".join([encode(self), b"".join(vectors[name].tobytes() for name in self.recipe.names)])


def setting_of(message: bytes) -> tuple[Setting, dict[str, Vector]]:
    """The setting and the vectors of a message."""
    # JSON escapes line ends: the first newline is the one behind it, whatever bytes the vectors
    # have.
    text, _, data = message.partition(b"\n")
    setting = decode(text, type=Setting)
    vectors = np.frombuffer(data, np.float32).reshape(len(setting.recipe.names), setting.size)
    return setting, dict(zip(setting.recipe.names, vectors, strict=True))


class Work(Struct, frozen=True, forbid_unknown_fields=True):
    """The work of a server so far."""

    updates: int
    busy_s: float
    """Seconds in which it did not wait for messages, since its process has started."""
    starts: int
    """Number of its processes: 1 if it was never lost."""


class Left(Struct, frozen=True, forbid_unknown_fields=True):
    """A group that is lost: its questions with smaller numbers are not answered."""

    group: int
    least: int
    after: int
    """The last of its epochs that is known already."""


class Lost(Struct, frozen=True, forbid_unknown_fields=True):
    """The end of a group whose training was not over."""

    group: int
    reason: str


def header_of(message: Vector) -> Any:
    """The header at the end of a message, as a record that can be read and set in place."""
    # The bits are only copied and never computed with: as float32 some of them would be NaN.
    return message[len(message) - HEADER_VALUES :].view(HEADER)[0]


def body_of(message: Vector) -> Vector:
    """The values of a message, without a copy."""
    return message[: len(message) - HEADER_VALUES]


@dataclass(frozen=True)
class Sharding:
    """The parameters of each server: the largest first, each on the server with the fewest values.

    No server has more than 4/3 of the values that the best placement gives it (Graham 1969).
    """

    shapes: tuple[tuple[int, ...], ...]
    servers: int

    @cached_property
    def _sizes(self) -> list[int]:
        return [int(np.prod(shape)) for shape in self.shapes]

    @cached_property
    def placed(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of each server's parameters, in their order."""
        found, loads = [list[int]() for _ in range(self.servers)], [0] * self.servers
        # A stable sort: every root finds the same placement by itself, also of parameters of one
        # size.
        for number in sorted(range(len(self._sizes)), key=lambda number: -self._sizes[number]):
            server = loads.index(min(loads))
            found[server].append(number)
            loads[server] += self._sizes[number]
        return tuple(tuple(sorted(numbers)) for numbers in found)

    def sizes(self) -> list[int]:
        """The number of values of each server."""
        return [sum(self._sizes[number] for number in numbers) for numbers in self.placed]

    def lengths(self) -> list[int]:
        """The lengths of each server's messages with values."""
        return [size + HEADER_VALUES for size in self.sizes()]

    def fill(self, server: int, values: Sequence[NDArray[Any]], into: Vector) -> None:
        """Write the values of a server's parameters in turn."""
        start = 0
        for number in self.placed[server]:
            size = self._sizes[number]
            into[start : start + size] = values[number].reshape(-1)
            start += size

    def values(self, vectors: Sequence[Vector]) -> list[NDArray[np.float32]]:
        """The parameters in their order, as parts of the servers' vectors."""
        found: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(self.shapes)
        for server, vector in enumerate(vectors):
            start = 0
            for number in self.placed[server]:
                size = self._sizes[number]
                found[number] = vector[start : start + size].reshape(self.shapes[number])
                start += size
        return found
