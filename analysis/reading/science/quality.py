"""The measures of an epoch of a scientific workload next to its target."""

from __future__ import annotations

from collections.abc import Mapping

from aiperf.facts import EpochFacts
from aiperf.records.bodies import WorkloadStarted


def measured_of(facts: EpochFacts, body: WorkloadStarted) -> dict[str, float | None]:
    """The measures that the target names; None for those that an epoch does not have.

    The first one is also the quality of the epoch, which is negative if lower is better.
    """
    values: dict[str, float | None] = {name: (facts.measures or {}).get(name) for name in body.target}
    first = next(iter(body.target), None)
    if first is not None and values[first] is None and facts.quality is not None:
        values[first] = facts.quality if body.higher else -facts.quality
    return values


def reaches_target(facts: EpochFacts, body: WorkloadStarted) -> bool:
    """True if every measure of the target is there, and at or beyond its value."""
    known = known_of(measured_of(facts, body))
    if not known or len(known) < len(body.target):
        return False
    if body.higher:
        return all(value >= body.target[name] for name, value in known.items())
    return all(value <= body.target[name] for name, value in known.items())


def known_of(values: Mapping[str, float | None]) -> dict[str, float]:
    """The measures that an epoch has."""
    return {name: value for name, value in values.items() if value is not None}
