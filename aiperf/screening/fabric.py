"""The network in a screening: pairs in rounds, bus bandwidth, and what it says of each node.

Pure functions. Bandwidths are those of nccl-tests (NVIDIA/nccl-tests, doc/PERFORMANCE.md): the size
of a collective over its time is the algorithm bandwidth, and a factor by the number of ranks makes
it the bus bandwidth, which does not depend on that number.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median

import numpy as np
from msgspec import Struct

from aiperf.screening.messages import NETWORK, WHOLE_NODE, Collective, Row, Timed

SMALL = 8
"""Bytes of an all-reduce whose time is latency."""

BLOCKS = 5
"""Blocks of a measurement, each of several exchanges."""

PAIR = "pair_"
"""Beginning of the measures of pairs of nodes."""

INSIDE = "inside_"
"""Beginning of the measures between the accelerators of one node."""

SLOW_PAIR = 0.7
"""Share of the median below which a pair of two good nodes is remarked on (our choice)."""


class Meeting(Struct, frozen=True, kw_only=True):
    """A group of ranks that exchanged tensors: two nodes, all nodes, or the devices of one."""

    nodes: tuple[str, ...]
    """Names of the nodes; of one node alone, its devices exchanged."""
    ranks: int
    """Number of ranks: one for each node, or for each device of one node."""
    library: str = ""
    """Library of the collectives, such as gloo or nccl."""
    number: int
    """Number of the pass, from 0."""
    times: tuple[Timed, ...] = ()
    """Times by collective and size."""
    problem: str | None = None
    """Reason why there are none."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Times of an all-reduce as a ring's: 2 (n - 1) messages of 1/n of the size."""

    latency_s: float
    bytes_per_s: float


def bus_factor(collective: Collective, ranks: int) -> float:
    """The bus bandwidth as a multiple of the algorithm bandwidth (nccl-tests)."""
    if collective == "send_receive":
        return 1.0
    return (2.0 if collective == "all_reduce" else 1.0) * (ranks - 1) / ranks


def bus_bandwidth(timed: Timed, ranks: int) -> float:
    """Bytes per second of each rank's link.

    `size` is that of nccl-tests: of the whole tensor (all-reduce), of what a rank receives
    (all-gather), of what a rank sends (all-to-all, send and receive), its own share included.
    """
    return timed.size / timed.seconds * bus_factor(timed.collective, ranks)


def rounds(count: int) -> list[list[tuple[int, int]]]:
    """Pairs of this many players, in rounds in which each plays at most once, until all have met.

    The circle method (Kirkman 1847): one stays, the others move on by one place.
    """
    players: list[int | None] = [*range(count), *([None] if count % 2 else [])]
    found = []
    for _ in range(len(players) - 1):
        half = len(players) // 2
        paired = zip(players[:half], reversed(players[half:]), strict=True)
        found.append([(min(a, b), max(a, b)) for a, b in paired if a is not None and b is not None])
        players = [players[0], players[-1], *players[1:-1]]
    return found


def fit(meeting: Meeting) -> Fit | None:
    """Latency and bandwidth of the all-reduces of a meeting; None of too few sizes."""
    points = [(each.size, each.seconds) for each in meeting.times if each.collective == "all_reduce"]
    if len(points) < 2 or meeting.ranks < 2:
        return None
    sizes, seconds = (np.array(column, np.float64) for column in zip(*points, strict=True))
    # Each size with the same weight: relative errors.
    columns = np.stack([1 / seconds, sizes / sizes.max() / seconds], axis=1)
    (constant, at_largest), *_ = np.linalg.lstsq(columns, np.ones(len(points)), rcond=None)
    if constant < 0:  # the bandwidth alone explains them
        constant, at_largest = 0.0, columns[:, 1].sum() / (columns[:, 1] ** 2).sum()
    if at_largest <= 0:
        return None
    # A ring's time is that of `messages` messages of size / ranks, one after another, each with a
    # latency of its own: the two terms of the fit, solved for latency and bandwidth.
    messages = 2 * (meeting.ranks - 1)
    return Fit(float(constant) / messages, messages / meeting.ranks * float(sizes.max() / at_largest))


def last_pass(meetings: Sequence[Meeting]) -> list[Meeting]:
    """The meetings of the last pass."""
    number = max((each.number for each in meetings), default=0)
    return [each for each in meetings if each.number == number]


def typical_fit(meetings: Sequence[Meeting], inside: bool) -> Fit | None:
    """The median of the fits of the last pass: within nodes, or between them.

    Between nodes that of all at once, or of pairs if there are only two.
    """
    chosen = [each for each in last_pass(meetings) if inside == (len(each.nodes) == 1)]
    largest = max((len(each.nodes) for each in chosen if each.times), default=0)
    fits = [found for each in chosen if len(each.nodes) == largest and (found := fit(each)) is not None]
    if not fits:
        return None
    return Fit(median(each.latency_s for each in fits), median(each.bytes_per_s for each in fits))


def best(meeting: Meeting) -> dict[str, tuple[float, float]]:
    """Best bus bandwidths of a meeting, and small all-reduces per second, with their spreads."""
    found: dict[str, tuple[float, float]] = {}
    for timed in meeting.times:
        if timed.size <= SMALL:
            found["latency"] = (1 / timed.seconds, timed.spread)
            continue
        rate = bus_bandwidth(timed, meeting.ranks)
        if rate > found.get(timed.collective, (0.0, 0.0))[0]:
            found[timed.collective] = (rate, timed.spread)
    return found


def rows_of(node: str, pairs: Sequence[Meeting]) -> list[Row]:
    """The rows of a node by its pairs: its best rate of each kind with any other node.

    A slow link of another node is in one of the pairs, its own slow link in all of them. The spread
    is that of the median of the blocks.
    """
    own = [pair for pair in pairs if node in pair.nodes]
    rates: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for pair in own:
        for name, rate in best(pair).items():
            rates[name].append(rate)
    kind = f"network, {library_of((*own, *pairs))}"
    if not rates:
        problem = next((pair.problem for pair in own if pair.problem), None)
        return [Row(device=NETWORK, kind=kind, measure=f"{PAIR}all_reduce", problem=problem)] if own else []
    return [
        Row(
            device=NETWORK, kind=kind, measure=f"{PAIR}{name}", value=max(found)[0], spread=max(found)[1] / sqrt(BLOCKS)
        )
        for name, found in rates.items()
    ]


def library_of(meetings: Iterable[Meeting]) -> str:
    """The library of some meetings: one that failed is of the kind of those that did not."""
    return next((meeting.library for meeting in meetings if meeting.library), "unknown")


def inside_rows(meeting: Meeting, model: str, library: str) -> list[Row]:
    """The rows of a node by the exchanges between its accelerators, of this model."""
    kind = f"{meeting.ranks} x {model}, {library}"[:1000]
    if meeting.problem is not None:
        return [Row(device=WHOLE_NODE, kind=kind, measure=f"{INSIDE}all_reduce", problem=meeting.problem)]
    return [
        Row(device=WHOLE_NODE, kind=kind, measure=f"{INSIDE}{name}", value=rate, spread=spread / sqrt(BLOCKS))
        for name, (rate, spread) in best(meeting).items()
    ]


def slow_pairs(meetings: Sequence[Meeting], bad: Iterable[str]) -> list[str]:
    """Pairs of nodes that are not bad, but whose link is slow or failed in every pass, in words."""
    bad_nodes = set(bad)
    found: dict[tuple[str, ...], list[str | None]] = defaultdict(list)
    for number in {each.number for each in meetings}:
        pairs = [each for each in meetings if each.number == number and len(each.nodes) == 2]
        found_rates = {each.nodes: best(each).get("all_reduce", (0.0, 0.0)) for each in pairs}
        rates = {nodes: rate for nodes, (rate, _) in found_rates.items()}
        middle = median(rates.values()) if rates else 0.0
        for pair in pairs:
            if pair.problem is not None:
                found[pair.nodes].append(f"failed: {pair.problem}")
            else:
                slow = f"all-reduce at {rates[pair.nodes] / 1e9:.3g} GB/s, the median of pairs is {middle / 1e9:.3g}"
                at_most = rates[pair.nodes] * (1 + found_rates[pair.nodes][1])
                found[pair.nodes].append(slow if at_most < SLOW_PAIR * middle else None)
    return [
        f"{' - '.join(nodes)}: {texts[-1]}"
        for nodes, texts in found.items()
        if all(texts) and not bad_nodes & set(nodes)
    ]
