"""Kept weights as they evaluate now, next to the record of their epoch."""

from aiperf.facts import EpochFacts
from referee.audit.comparison import correct_tolerance, relative
from referee.audit.recorded import KeptEpoch, Recorded


def difference_of_weights(recorded: Recorded, kept: KeptEpoch, found: EpochFacts) -> str:
    """The difference between kept weights as evaluated now and the record of their epoch."""
    try:
        facts = recorded.facts(kept.trial, kept.epoch)
    except KeyError:
        return f"{kept.path.name} names epoch {kept.epoch}, of which there is no record"
    if facts.weights is None or facts.weights != found.weights:
        return f"{kept.path.name} has other weights than the record of epoch {kept.epoch}"
    if facts.correct is None or found.correct is None:
        same = relative(facts.quality or 0.0, found.quality or 0.0) <= 0.002
        return "" if same else f"quality {found.quality}, recorded {facts.quality}"
    allowed = correct_tolerance(facts.images_evaluated)
    if facts.images_evaluated != found.images_evaluated or abs(facts.correct - found.correct) > allowed:
        return f"{quality_of(found)} (at most {allowed} more or less)"
    return ""


def quality_of(facts: EpochFacts) -> str:
    """The quality of an epoch in words."""
    if facts.correct is None:
        return f"quality {facts.quality}"
    return f"{facts.correct} of {facts.images_evaluated} images correct"
