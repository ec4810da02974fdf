"""A body of a record and its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from aiperf.records.damage import Damage, DamageKind

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Placed(Generic[T_co]):
    """A body and its place: file below the run, line from 1, UTC ms on the writer's clock."""

    file: str
    line: int
    sequence: int
    time_ms: int
    body: T_co

    def damage(self, kind: DamageKind, found: str, expected: str = "") -> Damage:
        """A damage at this place."""
        return Damage(self.file, self.line, kind, found, expected)
