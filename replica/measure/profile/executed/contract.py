"""The contract of a count of the operations that a framework executed in a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from replica.measure.profile.recorded.recording import Event

if TYPE_CHECKING:
    from replica.measure.profile.subject import Subject  # loads Keras


@dataclass(frozen=True, slots=True)
class Executed:
    """The floating-point operations of one step by the kind of layer that they belong to."""

    source: str
    """Program whose rules they follow."""
    by_kind: Mapping[str, float]
    missing: Mapping[str, str] = field(default_factory=dict)
    """Reasons by kind of layer, if not all of its operations are known."""


class Count(Protocol):
    """A count of the operations of one training step."""

    def __call__(self, subject: Subject, batch: tuple[Any, ...], events: Sequence[Event], steps: int) -> Executed:
        """Count by the recorded events of all steps, or by another step on the batch."""
