"""Qualities of scientific workloads in words, next to their targets."""

from collections.abc import Iterable

from aiperf.cli.units import number
from aiperf.facts import Measured


def best_of_each(found: Iterable[Measured]) -> list[Measured]:
    """The best of each workload, in the order in which they come."""
    best: dict[str, Measured] = {}
    for each in found:
        known = best.get(each.workload)
        if known is None or each.better_than(known):
            best[each.workload] = each
    return list(best.values())


def target_text(of: Measured) -> str:
    """The value that its first measure must reach, such as "at least 0.88"."""
    return f"{'at least' if of.higher else 'at most'} {of.target:g}"


def quality_text(of: Measured) -> str:
    """The measure and its value, such as "accuracy 0.8712"."""
    return f"{of.measure.replace('_', ' ')} {number(of.value)}"


def qualities_text(found: Iterable[Measured]) -> str:
    """The best of each workload, with its target."""
    return ", ".join(f"{of.workload} {quality_text(of)} ({target_text(of)})" for of in best_of_each(found))
