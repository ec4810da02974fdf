"""Counted and executed operations of a step side by side, by kind of layer."""

from __future__ import annotations

from dataclasses import dataclass

from aiperf.network.architecture import Architecture
from aiperf.network.operations import RuleSet, count
from replica.measure.profile.executed.contract import Executed

UNCOUNTED = "no operation of the step has its name: it is part of the loss, or of another layer"


@dataclass(frozen=True, slots=True)
class KindWork:
    """Operations of all layers of one kind in a step: both passes, all images of a rank."""

    kind: str
    layers: int
    counted: int
    """By the rules; 0 for what they do not count."""
    executed: float | None
    """By the framework; None if it does not tell."""
    reason: str
    """Why it does not."""


def work_by_kind(architecture: Architecture, rule_set: RuleSet, batch_size: int, executed: Executed) -> list[KindWork]:
    """All kinds that are counted or executed, the most counted first."""
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
