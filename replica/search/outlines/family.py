"""The outlines of all architectures of a run, from the records of how each was made.

A start names the parent and the morphs, or the base and the kernel size; `aiperf verify` checks
that these make the stored architecture. So a file is read only of an architecture that was not
made of another one, or of which the start cannot be followed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from aiperf.errors import ArchitectureError
from replica.search.outcomes import Start
from replica.search.outlines.outline import Loader, Outline, outlined, shared
from replica.search.outlines.skeleton import WIDEST, Skeleton, described, grown, skeleton_of, with_kernel_size
from search_space.morphisms import MAX_MORPHS, MorphData, morph_from_data

MOST_SKELETONS = 1024
"""Skeletons that are kept, the last ones in use, as parents: each takes about 5 kB."""


class _Origin(NamedTuple):
    """The architecture that another one was made of, and how."""

    source: str
    morphs: tuple[MorphData, ...]
    kernel_size: int | None


class Family:
    """The outlines of architectures by hash, each made once.

    `load` gives an architecture, `first` the start of its first trial, and `started` that of any.
    """

    def __init__(
        self, load: Loader, first: Callable[[str], Start | None], started: Callable[[int], Start | None]
    ) -> None:
        self._load = load
        self._first = first
        self._started = started
        self._outlines: dict[str, Outline] = {}
        self._skeletons: dict[str, Skeleton | None] = {}

    def outline(self, architecture_hash: str) -> Outline:
        """The outline of an architecture.

        Raises ArchitectureError if its file is needed and is missing or damaged.
        """
        if architecture_hash not in self._outlines:
            self._outlines[architecture_hash] = self._outline(architecture_hash)
        return self._outlines[architecture_hash]

    def _outline(self, name: str) -> Outline:
        skeleton = None
        with suppress(ArchitectureError):  # an ancestor's file may be missing
            skeleton = self._skeleton(name)
        if skeleton is None:
            return outlined(self._load(name), self._load)
        return Outline(name, *shared(*described(skeleton)), self._load)

    def _skeleton(self, name: str) -> Skeleton | None:
        """The skeleton of an architecture, made from that of its nearest ancestor that is kept."""
        descent, passed = list[tuple[str, _Origin]](), set[str]()
        while name not in self._skeletons:
            passed.add(name)
            origin = self._origin(name)
            # Records from outside may make an architecture its own ancestor.
            if origin is None or origin.source in passed:
                self._keep(name, skeleton_of(self._load(name)))
                break
            descent.append((name, origin))
            name = origin.source
        skeleton = self._keep(name, self._skeletons[name])
        for child, origin in reversed(descent):
            made = _made(skeleton, origin) if skeleton is not None else None
            skeleton = self._keep(child, made or skeleton_of(self._load(child)))
        return skeleton

    def _origin(self, name: str) -> _Origin | None:
        """The origin of an architecture; None if it has none, or its start does not say how."""
        start = self._first(name)
        if start is None:
            return None
        if start.point > 0 and start.base is not None:
            base, size = self._started(start.base), start.hyperparameters.get("kernel_size")
            if base is not None and base.architecture != name:
                return _Origin(base.architecture, (), size) if isinstance(size, int) and 0 < size < WIDEST else None
            start = base or start
        if start.parent is None or not 1 <= len(start.morphs) <= MAX_MORPHS:
            return None
        return _Origin(start.parent, start.morphs, None)

    def _keep(self, name: str, skeleton: Skeleton | None) -> Skeleton | None:
        # Inserted anew, it is the last in the dictionary's order: the first one is the one that was
        # out of use longest.
        self._skeletons.pop(name, None)
        self._skeletons[name] = skeleton
        if len(self._skeletons) > MOST_SKELETONS:
            del self._skeletons[next(iter(self._skeletons))]
        return skeleton


def _made(source: Skeleton, origin: _Origin) -> Skeleton | None:
    """The skeleton that an origin makes of its source's; None if the start cannot be followed."""
    if origin.kernel_size is not None:
        return with_kernel_size(source, origin.kernel_size)
    try:
        for data in origin.morphs:
            source = grown(source, morph_from_data(data))
    except (ArchitectureError, TypeError):
        return None
    return source
