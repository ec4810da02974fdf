"""The distance of architectures: edit distance of layers plus assignment distance of skips.

After Auto-Keras (Jin et al. 2019, section 4.1). A layer is a convolution or a dense layer;
normalisation and activation follow it.

- Layers: inserting or deleting one costs 1. Replacing one of width w and kernel side k costs
  min(1, |w - w'| / max(w, w') + |k - k'| / max(k, k') + [strides or kinds differ]).
  Each term is a metric, so the edit distance is one.
- Skip connections, as (depth of the source u, span s): a matched pair costs
  (|u - u'| + |s - s'|) / (max(u, u') + max(s, s')), an unmatched one 1, in the cheapest assignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from aiperf.network.architecture import Architecture
from aiperf.network.layers import Conv, Dense

SKIP_WEIGHT = 1.0
"""Weight of the skip connections relative to the layers (lambda in Auto-Keras)."""

DIGITS = 9
"""Decimal digits that a distance is rounded to."""

Floats = NDArray[np.float64]
_Token = tuple[int, int, int]
"""Width, kernel side, and the product of the strides (0 for a dense layer)."""


@dataclass(frozen=True)
class _Encoding:
    tokens: NDArray[np.intp]
    skips: Floats
    """(number of skip connections, 2): depth of the source and span."""


class DistanceTable:
    """Distances between architectures, cached by hash: each pair is computed once."""

    def __init__(self) -> None:
        self._vocabulary: dict[_Token, int] = {}
        self._costs: Floats = np.zeros((0, 0))
        self._encodings: dict[str, _Encoding] = {}
        self._known: dict[tuple[str, str], float] = {}

    def distances(self, one: Architecture, others: Sequence[Architecture]) -> Floats:
        """Distances from one architecture to each of the others, (n,)."""
        for other in others:
            self._encode(other)
        self._encode(one)
        missing = {o.hash: o for o in others if (one.hash, o.hash) not in self._known}
        if missing:
            names = list(missing)
            values = self._layers(one.hash, names) + SKIP_WEIGHT * self._skips(one.hash, names)
            # The order of a sum changes its last bits; proposals must not depend on it.
            values = values.round(DIGITS)
            for name, value in zip(names, values.tolist(), strict=True):
                self._known[one.hash, name] = self._known[name, one.hash] = value
        return np.array([self._known[one.hash, other.hash] for other in others])

    def _encode(self, architecture: Architecture) -> None:
        if architecture.hash in self._encodings:
            return
        tokens, skips = _describe(architecture)
        known = len(self._vocabulary)
        indices = [self._vocabulary.setdefault(token, len(self._vocabulary)) for token in tokens]
        if len(self._vocabulary) > known:
            self._costs = _replacement_costs(list(self._vocabulary))
        self._encodings[architecture.hash] = _Encoding(np.array(indices, np.intp), skips)

    def _layers(self, one: str, others: list[str]) -> Floats:
        sequence = self._encodings[one].tokens
        batch = [self._encodings[name].tokens for name in others]
        first = _shared(sequence, batch)
        last = _shared(sequence[first:][::-1], [tokens[first:][::-1] for tokens in batch])
        end = len(sequence) - last
        return _edit_distances(
            sequence[first:end], [tokens[first : len(tokens) - last] for tokens in batch], self._costs
        )

    def _skips(self, one: str, others: list[str]) -> Floats:
        own = self._encodings[one].skips
        return np.array([_assignment(own, self._encodings[name].skips) for name in others])


def _describe(architecture: Architecture) -> tuple[list[_Token], Floats]:
    tokens: list[_Token] = []
    depths: dict[str, int] = {}
    skips: list[tuple[int, int]] = []
    for node in architecture.nodes:
        layer = node.layer
        sources = sorted(depths[name] for name in node.inputs)
        depth = sources[-1] if sources else 0
        if isinstance(layer, Conv):
            tokens.append((layer.filters, layer.kernel[0], layer.stride[0] * layer.stride[1]))
            depth += 1
        elif isinstance(layer, Dense):
            tokens.append((layer.units, 1, 0))
            depth += 1
        depths[node.name] = depth
        skips += [(source, depth - source) for source in sources[:-1]]
    return tokens, np.array(skips, np.float64).reshape(-1, 2)


def _replacement_costs(vocabulary: list[_Token]) -> Floats:
    values = np.array(vocabulary, np.float64)
    width, kernel, stride = values.T
    result: Floats = np.minimum(1.0, _relative(width) + _relative(kernel) + (stride[:, None] != stride[None, :]))
    return result


def _relative(values: Floats) -> Floats:
    larger = np.maximum(values[:, None], values[None, :])
    result: Floats = np.abs(values[:, None] - values[None, :]) / np.maximum(larger, 1.0)
    return result


def _shared(sequence: NDArray[np.intp], batch: list[NDArray[np.intp]]) -> int:
    """Length of the prefix that the sequence shares with all of the batch."""
    length = min(len(sequence), *(len(tokens) for tokens in batch))
    for tokens in batch:
        differing = np.flatnonzero(sequence[:length] != tokens[:length])
        length = int(differing[0]) if len(differing) else length
    return length


def _edit_distances(sequence: NDArray[np.intp], batch: list[NDArray[np.intp]], costs: Floats) -> Floats:
    """Edit distances of one sequence to a batch, (n,): a dynamic programme over rows."""
    lengths = np.array([len(tokens) for tokens in batch])
    padded = np.zeros((len(batch), lengths.max(initial=0)), np.intp)
    for row, tokens in zip(padded, batch, strict=True):
        row[: len(tokens)] = tokens
    places = np.arange(padded.shape[1] + 1, dtype=np.float64)
    table = np.tile(places, (len(batch), 1))
    for number, token in enumerate(sequence, start=1):
        reached = np.minimum(table[:, 1:] + 1, table[:, :-1] + costs[token][padded])
        table = np.concatenate([np.full((len(batch), 1), float(number)), reached], axis=1)
        # Insertions run along the row: the least of all earlier cells plus their distance.
        table = np.minimum.accumulate(table - places, axis=1) + places
    result: Floats = table[np.arange(len(batch)), lengths]
    return result


def _assignment(one: Floats, other: Floats) -> float:
    unmatched = abs(len(one) - len(other))
    if not len(one) or not len(other) or np.array_equal(one, other):
        return float(unmatched)
    apart = np.abs(one[:, None] - other[None, :]).sum(axis=2)
    larger = np.maximum(one[:, None], other[None, :]).sum(axis=2)
    costs = apart / np.maximum(larger, 1.0)
    return float(costs[linear_sum_assignment(costs)].sum()) + unmatched
