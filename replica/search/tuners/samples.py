"""The samples that a model of a space learns from: all points, or the newest and the best.

hyperopt compares at most its 25 best results with the others, of which the weight falls linearly
with their age. What is neither among the best nor new decides next to nothing, but costs as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import sqrt

from replica.search.tuners.contract import Result, Tried

NEWEST = 300
"""Newest results, newest points in progress, and newest points out of memory that count."""

BEST = 100
"""Most accurate results that count, however old: four times as many as hyperopt takes for good."""

GAMMA = 0.25
"""Factor of the number of good results, `GAMMA` sqrt(n) of n (hyperopt's default)."""


def mean_accuracy(tried: Tried) -> float:
    """The mean of all results so far, as which a point in progress counts; 0 without any."""
    known = [result.accuracy for result in tried.measured]
    return sum(known) / len(known) if known else 0.0


def evidence(tried: Tried) -> list[Result]:
    """Measured results, those out of memory as the worst, and pending ones with the mean.

    They are in the order of their trials, and complete up to `NEWEST` + `BEST` results.
    """
    lie = mean_accuracy(tried)
    too_large = [Result(result.hyperparameters, 0.0) for result in tried.results if result.out_of_memory]
    pending = [Result(hyperparameters, lie) for hyperparameters in tried.pending]
    return [*_newest_and_best(tried.measured), *too_large[-NEWEST:], *pending[-NEWEST:]]


def good_share(tried: Tried) -> float:
    """`GAMMA` for the evidence, so that as many results are good as if all of them counted."""
    # hyperopt takes gamma sqrt(n) of the n results that it sees: fewer are shown, so gamma is
    # larger.
    counted = len(_newest_and_best(tried.measured))
    return GAMMA * sqrt(len(tried.measured) / counted) if counted else GAMMA


def _newest_and_best(results: Sequence[Result]) -> Sequence[Result]:
    if len(results) <= NEWEST + BEST:
        return results
    old = len(results) - NEWEST
    # The sort is stable: of equal results the earliest ones stay, on every replica the same.
    ranked = sorted(range(old), key=lambda place: -results[place].accuracy)
    return [*(results[place] for place in sorted(islice(ranked, BEST))), *results[old:]]
