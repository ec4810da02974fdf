"""The distance of architectures: edit distance of layers plus assignment distance of skips.

After Auto-Keras (Jin et al. 2019, section 4.1). A layer is a convolution or a dense layer;
normalisation and activation follow it.

- Layers: inserting or deleting one costs 1. Replacing one of width w and kernel side k costs
  min(1, |w - w'| / max(w, w') + |k - k'| / max(k, k') + [strides or kinds differ]).
  Each term is a metric, so the edit distance is one.
- Skip connections, as (depth of the source u, span s): a matched pair costs
  (|u - u'| + |s - s'|) / (max(u, u') + max(s, s')), an unmatched one 1, in the cheapest assignment.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from replica.search.outlines import Known, Outline, Token, describe

SKIP_WEIGHT = 1.0
"""Weight of the skip connections relative to the layers (lambda in Auto-Keras)."""

DIGITS = 9
"""Decimal digits that a distance is rounded to."""

BATCH = 512
"""Architectures whose rows of the edit distance are computed together: these fit a cache."""

MOST_PAIRS = 400_000
"""Most distances that are kept, each in both directions: about 60 MB."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Encoding:
    tokens: NDArray[np.intp]
    skips: Floats
    """(number of skip connections, 2): depth of the source and span."""
    kind: int
    """Number of this set of skip connections, which many architectures share."""


class DistanceTable:
    """Distances between architectures, cached by hash: each pair is computed once.

    The cache is emptied by `trim` when it has become large. That changes no distance.
    """

    def __init__(self) -> None:
        self._vocabulary: dict[Token, int] = {}
        self._costs: Floats = np.zeros((0, 0))
        self._encodings: dict[str, _Encoding] = {}
        self._known: dict[tuple[str, str], float] = {}
        self._kinds: dict[bytes, int] = {}
        self._assigned: dict[tuple[int, int], float] = {}
        """Assignment distances by kinds of skip connections, which many architectures share."""

    def distances(self, one: Known, others: Sequence[Known]) -> Floats:
        """Distances from one architecture to each of the others, (n,)."""
        missing = {o.hash: o for o in others if (one.hash, o.hash) not in self._known}
        if missing:
            values = self.measure(one, list(missing.values()))
            for name, value in zip(missing, values.tolist(), strict=True):
                self._known[one.hash, name] = self._known[name, one.hash] = value
        return np.array([self._known[one.hash, other.hash] for other in others])

    def measure(self, one: Known, others: Sequence[Known]) -> Floats:
        """Compute `distances` without keeping them."""
        for known in (one, *others):
            self._encode(known)
        names = [other.hash for other in others]
        parts = [names[start : start + BATCH] for start in range(0, len(names), BATCH)]
        values = [self._layers(one.hash, part) + SKIP_WEIGHT * self._skips(one.hash, part) for part in parts]
        # The order of a sum changes its last bits; proposals must not depend on it.
        return np.concatenate(values).round(DIGITS)

    def trim(self) -> None:
        """Forget all if more than `MOST_PAIRS` distances are cached."""
        if len(self._known) > MOST_PAIRS:
            self._known.clear()
            self._encodings.clear()
            self._kinds.clear()
            self._assigned.clear()

    def _encode(self, known: Known) -> None:
        if known.hash in self._encodings:
            return
        tokens, skips = (known.layers, known.skips) if isinstance(known, Outline) else describe(known)
        size = len(self._vocabulary)
        indices = [self._vocabulary.setdefault(token, len(self._vocabulary)) for token in tokens]
        if len(self._vocabulary) > size:
            self._costs = _replacement_costs(list(self._vocabulary))
        pairs = np.array(skips, np.float64).reshape(-1, 2)
        kind = self._kinds.setdefault(pairs.tobytes(), len(self._kinds))
        self._encodings[known.hash] = _Encoding(np.array(indices, np.intp), pairs, kind)

    def _layers(self, one: str, others: list[str]) -> Floats:
        sequence = self._encodings[one].tokens
        batch = [self._encodings[name].tokens for name in others]
        # A morph changes few layers, so most of a pair is a common prefix and a common suffix. The
        # edit distance of the rest in between is that of the whole sequences.
        first = _shared(sequence, batch)
        last = _shared(sequence[first:][::-1], [tokens[first:][::-1] for tokens in batch])
        end = len(sequence) - last
        return _edit_distances(
            sequence[first:end], [tokens[first : len(tokens) - last] for tokens in batch], self._costs
        )

    def _skips(self, one: str, others: list[str]) -> Floats:
        own = self._encodings[one]
        return np.array([self._assigned_once(own, self._encodings[name]) for name in others])

    def _assigned_once(self, one: _Encoding, other: _Encoding) -> float:
        key = one.kind, other.kind
        if key not in self._assigned:
            self._assigned[key] = _assignment(one.skips, other.skips)
        return self._assigned[key]


class Columns:
    """Distances from a few architectures to many, kept as long as they are among the few.

    What is kept changes no distance.
    """

    def __init__(self, table: DistanceTable) -> None:
        self._table = table
        self._rows: dict[str, int] = {}
        """Row of a column, by the hash of one of the many."""
        self._columns: dict[str, Floats] = {}
        """Distances by the hash of one of the few, in the order of the rows; NaN: not known yet."""

    def distances(self, many: Sequence[Known], few: Sequence[Known]) -> Floats:
        """Distances as an array (many, few)."""
        rows = np.array([self._rows.setdefault(other.hash, len(self._rows)) for other in many], np.intp)
        self._columns = {one.hash: self._column(one, many, rows) for one in few}
        return np.stack([self._columns[one.hash][rows] for one in few], axis=1)

    def _column(self, one: Known, many: Sequence[Known], rows: NDArray[np.intp]) -> Floats:
        known = self._columns.get(one.hash, np.empty(0))
        column: Floats = np.concatenate([known, np.full(len(self._rows) - len(known), np.nan)])
        # The same architecture may come twice among the many: it is measured once.
        places, first = np.unique(rows, return_index=True)
        missing = np.isnan(column[places])
        if missing.any():
            column[places[missing]] = self._table.measure(one, [many[place] for place in first[missing].tolist()])
        return column


def _replacement_costs(vocabulary: list[Token]) -> Floats:
    values = np.array(vocabulary, np.float64)
    # Dense layers have the stride 0, so that the last term also stands for the kind of a layer.
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
    # The table holds the distances minus the number of insertions up to a cell. An insertion then
    # costs nothing along a row, so that the recurrence within a row, which NumPy could not compute
    # at once, is a running minimum; a deletion costs 1, and a replacement its cost minus 1.
    table = np.zeros((len(batch), padded.shape[1] + 1))
    for replaced in costs[sequence] - 1:
        reached = table[:, :-1] + replaced.take(padded)
        np.minimum(reached, table[:, 1:] + 1, out=table[:, 1:])
        table[:, 0] += 1
        np.minimum.accumulate(table, axis=1, out=table)
    # Each sequence at its own end: what was computed from the padding behind it is not read.
    result: Floats = table[np.arange(len(batch)), lengths] + lengths
    return result


def _assignment(one: Floats, other: Floats) -> float:
    # The assignment pairs all skip connections of the shorter list, since no pair costs more than
    # two unmatched ones.
    unmatched = abs(len(one) - len(other))
    if not len(one) or not len(other) or np.array_equal(one, other):
        return float(unmatched)
    (sources, spans), (other_sources, other_spans) = one.T, other.T
    apart = np.abs(np.subtract.outer(sources, other_sources)) + np.abs(np.subtract.outer(spans, other_spans))
    larger = np.maximum.outer(sources, other_sources) + np.maximum.outer(spans, other_spans)
    # Two connections of zeros have the distance 0, and not 0 / 0.
    costs = apart / np.maximum(larger, 1.0)
    return float(costs[linear_sum_assignment(costs)].sum()) + unmatched
