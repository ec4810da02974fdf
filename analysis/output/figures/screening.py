"""The heat maps of a screening: devices by measures, and pairs of nodes."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from statistics import median
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from aiperf.screening.fabric import best, last_pass
from aiperf.screening.measures import MEASURES
from aiperf.screening.outcome import Outcome, measured_in
from analysis.output.figures.style import GRID, Drawing, draw

LOWEST, HIGHEST = 0.7, 1.1
"""Shares of the median at the ends of the colours."""

SHARES = LinearSegmentedColormap.from_list(
    "shares", [(0.0, "#7a1f00"), (0.5, "#e08a00"), (0.75, "#dfe3ea"), (1.0, "#0a84c6")]
)
"""Dark at the bottom, pale at the median: lightness alone shows what is slow."""

MOST_LABELS = 48
"""Rows up to which each has its name; beyond, bad ones are counted at the top."""

MOST_ROWS = 512
"""Rows up to which each is a device; beyond, a node: thinner rows would not be seen."""

ROW_IN, LEAST_IN, MOST_IN = 0.17, 1.6, 9.0


def shares(outcome: Outcome) -> dict[tuple[str, str], dict[str, float]]:
    """The measures of the last pass by node and device, as shares of the median of the kind."""
    rows = [item for item in measured_in(outcome.nodes, outcome.passes - 1) if item.row.value is not None]
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for item in rows:
        values[item.row.kind, item.row.measure].append(item.row.value or 0.0)
    middles = {key: median(found) for key, found in values.items()}
    found: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for item in rows:
        middle = middles[item.row.kind, item.row.measure]
        if item.row.measure in MEASURES and middle > 0:
            found[item.node, item.row.device][item.row.measure] = (item.row.value or 0.0) / middle
    return dict(found)


def pair_shares(outcome: Outcome) -> dict[tuple[str, str], float]:
    """All-reduces of pairs in the last pass, as shares of the median of all pairs; 0: failed."""
    pairs = [each for each in last_pass(outcome.meetings) if len(each.nodes) == 2]
    rates = {(each.nodes[0], each.nodes[1]): best(each).get("all_reduce", (0.0, 0.0))[0] for each in pairs}
    middle = median(rates.values()) if rates else 0.0
    return {pair: rate / middle for pair, rate in rates.items()} if middle else {}


def heat_maps(outcome: Outcome) -> dict[str, Drawing]:
    """The figures that the outcome has values for."""
    found = {}
    if by_device := shares(outcome):
        found["devices"] = _devices(by_device, {(item.node, item.device) for item in outcome.bad})
    if by_pair := pair_shares(outcome):
        names = [node.name for node in outcome.nodes if any(node.name in pair for pair in by_pair)]
        found["pairs"] = _pairs(by_pair, names, set(outcome.bad_nodes))
    return found


def _devices(by_device: dict[tuple[str, str], dict[str, float]], bad: Collection[tuple[str, str]]) -> Drawing:
    what, places = "devices", sorted(by_device, key=lambda place: place not in bad)
    if len(places) > MOST_ROWS:
        what, by_device = "nodes, each by the slowest of its devices", _by_node(by_device)
        bad = {(node, "") for node, _ in bad}
        places = sorted(by_device, key=lambda place: place not in bad)
    measures = [name for name in MEASURES if any(name in row for row in by_device.values())]
    values = np.array([[row.get(name, np.nan) for name in measures] for row in map(by_device.__getitem__, places)])
    labels = _labels([f"{node} {device}".strip() for node, device in places], sum(place in bad for place in places))

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        _paint(figure, axes, values)
        axes.set_xticks(range(len(measures)), measures, rotation=35, ha="right")
        axes.set_yticks([*labels], [*labels.values()])

    caption = f"Each device's measures as shares of the median of its kind, bad ones first: {len(places)} {what}."
    return draw("devices", caption, paint, _height(len(places)))


def _by_node(by_device: dict[tuple[str, str], dict[str, float]]) -> dict[tuple[str, str], dict[str, float]]:
    found: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for (node, _), row in by_device.items():
        own = found[node, ""]
        for name, share in row.items():
            own[name] = min(share, own.get(name, share))
    return found


def _labels(names: Sequence[str], bad: int) -> dict[int, str]:
    """The texts next to rows, of which bad ones come first."""
    if len(names) <= MOST_LABELS:
        return dict(enumerate(names))
    return {0: f"{bad} bad"} if bad else {}


def _pairs(by_pair: dict[tuple[str, str], float], names: Sequence[str], bad: Collection[str]) -> Drawing:
    if len(names) > MOST_LABELS:
        return _exchanges(by_pair, names, bad)
    places = {name: number for number, name in enumerate(names)}
    values = np.full((len(names), len(names)), np.nan)
    for (one, other), share in by_pair.items():
        values[places[one], places[other]] = values[places[other], places[one]] = share

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        _paint(figure, axes, values)
        axes.set_xticks(range(len(names)), names, rotation=90)
        axes.set_yticks(range(len(names)), names)

    caption = f"All-reduces of pairs of nodes as shares of the median pair: {len(by_pair)} pairs; blank: did not meet."
    return draw("pairs", caption, paint, _height(len(names)) + 0.8)


def _exchanges(by_pair: dict[tuple[str, str], float], names: Sequence[str], bad: Collection[str]) -> Drawing:
    """Of many nodes, which met few others, a row for each and a column for each of its partners."""
    rows = sorted(names, key=lambda name: name not in bad)
    own: dict[str, list[float]] = {name: [] for name in rows}
    for pair, share in by_pair.items():
        for name in pair:
            own[name].append(share)
    values = np.full((len(rows), max(map(len, own.values()))), np.nan)
    for number, found in enumerate(own.values()):
        values[number, : len(found)] = found
    labels = _labels(rows, sum(name in bad for name in rows))

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        _paint(figure, axes, values)
        axes.set_xticks([])
        axes.set_xlabel("exchanges of each node, in their order")
        axes.set_yticks([*labels], [*labels.values()])

    caption = (
        f"All-reduces of pairs as shares of the median pair, bad nodes first: {len(rows)} nodes, {len(by_pair)} pairs."
    )
    return draw("pairs", caption, paint, _height(len(rows)))


def _height(rows: int) -> float:
    return min(MOST_IN, max(LEAST_IN, ROW_IN * rows) + 0.9)


def _paint(figure: Any, axes: Any, values: Any) -> None:
    image = axes.imshow(values, cmap=SHARES, vmin=LOWEST, vmax=HIGHEST, aspect="auto", interpolation="nearest")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set(visible=True, color=GRID)
    bar = figure.colorbar(image, ax=axes, extend="both", shrink=min(1.0, 1.6 / figure.get_figheight()))
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
