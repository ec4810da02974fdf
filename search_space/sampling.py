"""Random morphs: an operator first, then a place, so that many places do not add weight."""

import random

from aiperf.errors import ArchitectureError
from aiperf.network.architecture import Architecture
from search_space import morphisms
from search_space.streams import streams

MAX_DRAWS = 100
"""Draws after which an architecture is taken to have no morph left."""


def random_morph(architecture: Architecture, rng: random.Random) -> tuple[morphisms.Morph, Architecture]:
    """Draw a morph, and make its child. Raises ArchitectureError if none can be found."""
    for _ in range(MAX_DRAWS):
        morph = rng.choice(_OPERATORS)(architecture, rng)
        if morph is None:
            continue
        try:
            return morph, morph.apply(architecture)
        except ArchitectureError:
            continue  # not every pair of places fits
    raise ArchitectureError(f"no morph of architecture {architecture.hash} in {MAX_DRAWS} draws")


def _deepen(architecture: Architecture, rng: random.Random) -> morphisms.Morph | None:
    sites = morphisms.deepen_sites(architecture)
    return morphisms.Deepen(rng.choice(sites)) if sites else None


def _widen(architecture: Architecture, rng: random.Random) -> morphisms.Morph | None:
    found = streams(architecture)
    if not found:
        return None
    stream = rng.choice(found)
    wider = morphisms.widths(stream.channels)
    return morphisms.Widen(stream.producers[0], rng.choice(wider)) if wider else None


def _skip(architecture: Architecture, rng: random.Random) -> morphisms.Morph | None:
    relus = morphisms.deepen_sites(architecture)
    if len(relus) < 2:
        return None
    source, target = sorted(rng.sample(range(len(relus)), 2))
    return morphisms.AddSkip(relus[source], relus[target])


def _enlarge(architecture: Architecture, rng: random.Random) -> morphisms.Morph | None:
    sites = morphisms.kernel_sites(architecture)
    return morphisms.EnlargeKernel(rng.choice(sites)) if sites else None


# Drawn with equal odds; their order is part of what a seed gives (`referee/replay.py`).
_OPERATORS = (_deepen, _widen, _skip, _enlarge)
