"""Cost and size of a run's architectures, and the making of each from its source by its morphs.

An architecture is read after the one that it is made from: what its morphs make is compared with
its file, and a file with just that need not be checked and hashed a second time.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property

from aiperf.errors import ArchitectureError, UncountedLayerError
from aiperf.network.architecture import Architecture
from aiperf.network.operations import Operations, totals
from aiperf.records.damage import Damage
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.run_directory.paths import RunPaths
from analysis.reading.workers import Workers
from search_space.hyperparameters import apply_hyperparameters
from search_space.limits import Limits, Size
from search_space.morphisms import apply_all, morph_from_data

_HASH = re.compile("[0-9a-f]{16}")

CHUNK = 256
"""Architectures that are read in one task."""


@dataclass(frozen=True, slots=True)
class ArchitectureFacts:
    """Cost and size of an architecture; `depth` counts convolutions and dense layers."""

    cost: Operations
    parameters: int
    depth: int


@dataclass(frozen=True, slots=True)
class Claim:
    """An architecture and the way in which it is said to be made, by hashes.

    `source` is the parent, or the base of a tuned trial. `morphs` is their JSON.
    """

    architecture: str
    source: str
    morphs: str
    kernel_size: int | None
    tuned: bool
    limits: Limits | None
    """Limits of the search; None for tuned trials, which may exceed the memory if no point fits."""


Problem = str | None
Chunk = tuple[list[ArchitectureFacts | str], list[Problem]]
"""Facts of each architecture, or why it cannot be read; and the problem of each claim."""


class Architectures:
    """The architectures of a run, while they are read."""

    def __init__(self, paths: RunPaths, names: Iterable[str], claims: Collection[Claim], workers: Workers) -> None:
        self._paths, self._names = paths, list(dict.fromkeys(names))
        by_name: dict[str, list[Claim]] = {}
        for claim in claims:
            by_name.setdefault(claim.architecture, []).append(claim)
        sources = {claim.architecture: claim.source for claim in claims if claim.source != claim.architecture}
        ordered = _in_families(self._names, sources)
        self._chunks: list[tuple[list[str], list[Claim], Future[Chunk]]] = []
        for start in range(0, len(ordered), CHUNK):
            chunk = ordered[start : start + CHUNK]
            own = [claim for name in chunk for claim in by_name.get(name, ())]
            self._chunks.append((chunk, own, workers.submit(_read_all, paths, chunk, own)))

    @cached_property
    def _read(self) -> dict[str, ArchitectureFacts | str]:
        pairs = (zip(names, future.result()[0], strict=True) for names, _, future in self._chunks)
        read = {name: facts for own in pairs for name, facts in own}
        return {name: read[name] for name in self._names}

    @cached_property
    def found(self) -> dict[str, ArchitectureFacts]:
        """The facts by hash, without architectures that cannot be read."""
        return {name: facts for name, facts in self._read.items() if isinstance(facts, ArchitectureFacts)}

    def damages(self) -> list[Damage]:
        """The damages of other architectures. One whose hash is not its name is one of those."""
        return [self._damage(name, facts) for name, facts in sorted(self._read.items()) if isinstance(facts, str)]

    def problems(self) -> dict[Claim, Problem]:
        """The problem of each claim about architectures that could be read."""
        found = self.found
        return {
            claim: problem
            for _, claims, future in self._chunks
            for claim, problem in zip(claims, future.result()[1], strict=True)
            if claim.architecture in found and claim.source in found
        }

    def _damage(self, name: str, problem: str) -> Damage:
        problem = problem.removeprefix(f"{self._paths.architecture(name)}: ")
        return Damage(f"models/{name}/architecture.json", None, "architecture", problem)


def _in_families(names: Iterable[str], sources: Mapping[str, str]) -> list[str]:
    """Each name once, behind its source and next to its family as far as that can be."""
    known = dict.fromkeys(names)
    children: dict[str, list[str]] = {}
    for name in known:
        if (source := sources.get(name)) in known and source is not None:
            children.setdefault(source, []).append(name)
    made = {name for own in children.values() for name in own}
    ordered: dict[str, None] = {}
    # The second pass is for those that are said to be made from each other, in a circle.
    for first in (*(name for name in known if name not in made), *known):
        stack = [first]
        while stack:
            name = stack.pop()
            if name not in ordered:
                ordered[name] = None
                # Reversed, since the last one on a stack comes first.
                stack += reversed(children.get(name, []))
    return list(ordered)


def _read_all(paths: RunPaths, names: Sequence[str], claims: Sequence[Claim]) -> Chunk:
    by_name: dict[str, list[Claim]] = {}
    for claim in claims:
        by_name.setdefault(claim.architecture, []).append(claim)
    # A store of its own: thousands of architectures would fill the memory.
    store, found, problems = ArchitectureStore(paths), list[ArchitectureFacts | str](), list[Problem]()
    for name in names:
        own = by_name.get(name, [])
        # One that is tuned from itself can only be made when it is read.
        made = {claim: _made(store, claim) for claim in own if claim.source != name}
        expected = next((item for item in made.values() if isinstance(item, Architecture) and item.hash == name), None)
        found.append(facts := _read(store, name, expected))
        made |= {claim: _made(store, claim) for claim in own if claim.source == name}
        problems += [_problem(claim, made[claim], facts) for claim in own]
    return found, problems


def _read(store: ArchitectureStore, name: str, expected: Architecture | None) -> ArchitectureFacts | str:
    if _HASH.fullmatch(name) is None:  # a path of an opponent may lead anywhere
        return "its name is not the hash of an architecture"
    try:
        architecture = store.load(name, expected)
        cost, parameters = totals(architecture)
    except (ArchitectureError, UncountedLayerError) as error:
        return str(error)
    return ArchitectureFacts(cost, parameters, architecture.depth)


def _made(store: ArchitectureStore, claim: Claim) -> Architecture | Exception | None:
    """The architecture that a claim makes, or why it makes none; None if its source is missing."""
    if _HASH.fullmatch(claim.source) is None:
        return None
    try:
        source = store.load(claim.source)
    except ArchitectureError:
        return None
    try:
        if claim.tuned:
            return apply_hyperparameters(source, {"kernel_size": claim.kernel_size} if claim.kernel_size else {})
        return apply_all(source, (morph_from_data(data) for data in json.loads(claim.morphs)))
    except Exception as error:  # for `_problem` to judge, if the claim matters
        return error


def _problem(claim: Claim, made: Architecture | Exception | None, facts: ArchitectureFacts | str) -> Problem:
    """The problem of a claim, or None; None also if its architectures cannot be read."""
    if made is None or isinstance(facts, str):
        return None
    if isinstance(made, ArchitectureError | TypeError | ValueError):
        return f"it cannot be made: {made}"
    if isinstance(made, Exception):
        raise made
    if made.hash != claim.architecture:
        return f"{claim.source} and its {'tuned kernels' if claim.tuned else 'morphs'} make {made.hash}"
    size = Size(facts.parameters, facts.cost.total, facts.depth)
    return claim.limits.refusal(made, size) if claim.limits is not None else None
