"""The contract of a count of the operations that a framework executed, and their sums by kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from aiperf.network.architecture import Architecture
from aiperf.network.operations import RuleSet, count
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


UNCOUNTED = "no operation of the step has its name: it is part of the loss, or of another layer"


@dataclass(frozen=True, slots=True)
class KindWork:
    """The operations of all layers of one kind in a step: both passes, all images of a rank."""

    kind: str
    layers: int
    counted: int
    """Operations by the rules; 0 for kinds that they do not count."""
    executed: float | None
    """Operations by the framework; None if it does not report them."""
    reason: str
    """Reason why the framework does not report them; empty if it does."""


def work_by_kind(architecture: Architecture, rule_set: RuleSet, batch_size: int, executed: Executed) -> list[KindWork]:
    """List all kinds that are counted or executed, the most counted first."""
    found = []
    totals = count(architecture, rule_set).by_kind
    for kind in [*totals, *(executed.by_kind.keys() - totals.keys())]:
        layers, counted = 0, 0
        if kind in totals:
            layers, counted = totals[kind].count, batch_size * totals[kind].operations.total
        reason = executed.missing.get(kind, "" if kind in executed.by_kind else UNCOUNTED)
        own = None if reason else executed.by_kind[kind]
        if counted or own:
            found.append(KindWork(kind, layers, counted, own, reason))
    return sorted(found, key=lambda item: (-item.counted, -(item.executed or 0.0)))
