"""Morphs as plain data, for records, candidates and requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from aiperf.errors import ArchitectureError
from aiperf.network.architecture import Architecture
from search_space.morphisms import MORPH_TYPES, Morph

MorphData = dict[str, str | int]


def morph_data(morph: Morph) -> MorphData:
    """A morph as its kind and its parameters."""
    return {"kind": type(morph).__name__, **asdict(morph)}


def morph_from_data(data: Mapping[str, str | int]) -> Morph:
    """The morph that the data describes. Raises ArchitectureError."""
    parameters = dict(data)
    kind = parameters.pop("kind", None)
    if kind not in MORPH_TYPES:
        raise ArchitectureError(f"morph kind is {kind!r}; known: {', '.join(MORPH_TYPES)}")
    try:
        return MORPH_TYPES[str(kind)](**parameters)  # type: ignore[arg-type]
    except TypeError as error:
        raise ArchitectureError(f"morph {dict(data)} is not valid: {error}") from None


def apply_all(architecture: Architecture, morphs: Iterable[Morph]) -> Architecture:
    """The architecture after all morphs in turn. Raises ArchitectureError."""
    for morph in morphs:
        architecture = morph.apply(architecture)
    return architecture
