"""Results that are the same run, and results that claim parts of one run.

A copy adds nothing to a ranking: it is named and left out. Results that share a release or the
steps of epochs and are *not* equal contradict each other, and nothing in their files says which of
them is the run. So both keep the rows that they have alone, each names the other, and they count as
one for the ranks of others. A signature decides: what somebody else took from a signed run, and did
not sign, has no rank.
"""

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations

import numpy as np

from analysis.results.source import Numbers, RunResult, numbers_of

RANKED = ("official", "unofficial")
"""Statuses of results whose contradictions matter: the others have no score."""

ALIKE = frozenset({"LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "CHEROKEE"})
"""Scripts with letters that look like those of another one of them, as Unicode names them."""

INVISIBLE = ("Cf", "Cc", "Co", "Cn")
"""Categories of Unicode whose characters nobody sees."""


def once(
    results: Iterable[RunResult], order: Sequence[str], shown: Callable[[RunResult], object]
) -> tuple[list[RunResult], list[tuple[str, str]]]:
    """The results without copies, and the copies, each with the result that it is one of.

    `order`: statuses, the best first. A copy has the same records and the same row (`shown`). A
    damaged copy has other records; it is left out if the whole run is there.
    """
    found = list(results)
    by_head: dict[tuple[str, object], RunResult] = {}
    by_release: dict[str, RunResult] = {}
    copies: dict[int, RunResult] = {}
    for result in sorted(found, key=lambda result: order.index(result.status)):
        kept = by_head.setdefault((result.head, shown(result)), result) if result.head is not None else result
        if kept is result and result.status == "invalid" and result.identity is not None:
            kept = by_release.get(result.identity, result)
        if kept is not result:
            copies[id(result)] = kept
        elif result.identity is not None and result.status in RANKED:
            by_release.setdefault(result.identity, result)
    same = [(str(result.origin), str(copies[id(result)].origin)) for result in found if id(result) in copies]
    return [result for result in found if id(result) not in copies], same


@dataclass(frozen=True)
class Contest:
    """Contradictions between results. Results are named by their place in the list."""

    rivals: dict[int, set[int]] = field(default_factory=dict)
    """Results that contradict each one that is contradicted."""
    refused: frozenset[int] = frozenset()
    """Results without a signature that have parts of a signed one."""
    words: tuple[str, ...] = ()
    """A line for each contradiction."""


def contest(results: Sequence[RunResult]) -> Contest:
    """Find the results that claim parts of one run."""
    releases: dict[str, list[int]] = {}
    for place, result in enumerate(results):
        if result.status in RANKED and result.identity is not None:
            releases.setdefault(result.identity, []).append(place)
    shared = {pair: 0 for places in releases.values() for pair in combinations(places, 2)}
    shared |= _epochs_in_common(tuple(each.evidence if each.status in RANKED else b"" for each in results))
    rivals: dict[int, set[int]] = {}
    refused: set[int] = set()
    words = []
    for (first, second), epochs in sorted(shared.items()):
        signers = results[first].signer, results[second].signer
        if signers[0] is not None and signers[0] == signers[1]:
            continue  # a submitter's repetitions with one seed may have the same steps
        rivals.setdefault(first, set()).add(second)
        rivals.setdefault(second, set()).add(first)
        unsigned = [place for place, signer in zip((first, second), signers, strict=True) if signer is None]
        refused |= set(unsigned) if len(unsigned) == 1 else set()
        words.append(_worded(results[first], results[second], epochs))
    return Contest(rivals, frozenset(refused), tuple(words))


@lru_cache(maxsize=1)  # a list ranks the same results by several measures
def _epochs_in_common(evidence: tuple[bytes, ...]) -> Mapping[tuple[int, int], int]:
    """The number of epochs that two results have in common, by their places, of pairs with any."""
    every = np.sort(np.concatenate([numbers_of(b""), *map(numbers_of, evidence)]))
    # No result has a number twice, so equal neighbours are of different results.
    repeated = np.unique(every[1:][every[1:] == every[:-1]])
    own = [_among(numbers_of(each), repeated) for each in evidence]
    every = np.concatenate([repeated[:0], *own])
    places = np.repeat(np.arange(len(own)), [len(each) for each in own])
    order = np.argsort(every, kind="stable")
    every, places = every[order], places[order]
    found: dict[tuple[int, int], int] = {}
    begins, distance = np.arange(len(every)), 1
    # Equal numbers are neighbours now, in the order of places: the next one first, then the others.
    while len(begins := begins[: np.searchsorted(begins, len(every) - distance)]):
        # Whatever differs at this distance differs at all greater ones, since the numbers ascend.
        begins = begins[every[begins] == every[begins + distance]]
        pairs, times = np.unique(np.stack([places[begins], places[begins + distance]]), axis=1, return_counts=True)
        for first, second, count in zip(*pairs.tolist(), times.tolist(), strict=True):
            found[first, second] = found.get((first, second), 0) + count
        distance += 1
    return found


def _among(numbers: Numbers, some: Numbers) -> Numbers:
    """Those of the numbers that are among some, which are in ascending order."""
    if not len(some):
        return some
    # A number above all of `some` would be looked up behind its end.
    found: Numbers = numbers[some[np.searchsorted(some, numbers).clip(max=len(some) - 1)] == numbers]
    return found


def _worded(first: RunResult, second: RunResult, epochs: int) -> str:
    least = min(len(numbers_of(first.evidence)), len(numbers_of(second.evidence)))
    what = f"the steps of {epochs} of {least} epochs" if epochs else "their release"
    return (
        f"{first.origin} and {second.origin} are different results with {what} in common: one was made from the other, "
        "or both are one training with one seed; signatures say whose the run is (--signers)"
    )


def names_to_look_at(results: Iterable[RunResult]) -> tuple[str, ...]:
    """Names that can be taken for others: letters of several scripts, or characters unseen."""
    found = []
    for result in results:
        name = result.report.name
        unseen = sorted({f"U+{ord(c):04X}" for c in name if unicodedata.category(c) in INVISIBLE})
        alphabets = alphabets_of(name)
        if unseen:
            found.append(f"{result.origin}: its name {name!a} has characters that are not seen: {', '.join(unseen)}")
        if alphabets:
            found.append(f"{result.origin}: its name {name!a} mixes letters: {', '.join(alphabets).title()}")
    return tuple(found)


def alphabets_of(name: str) -> tuple[str, ...]:
    """The alphabets of a name's letters that look alike, if they are more than one."""
    found = {unicodedata.name(letter, "-").split()[0] for letter in name if letter.isalpha()} & ALIKE
    return tuple(sorted(found)) if len(found) > 1 else ()
