"""The figure of a trend: each series over time, relative to its first results."""

from collections.abc import Sequence
from datetime import datetime
from math import ceil
from typing import Any

from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

from aiperf.untrusted.text import cut
from analysis.output.figures.style import COLOURS, GRID, Drawing, draw
from analysis.output.page.vocabulary import words_of
from analysis.results.result_store.facts import SHARES
from analysis.results.result_store.trend import Series

MOST_PANELS = 12
"""Series that have a panel: those that got worse come first."""

MOST_LINES = len(COLOURS)
"""Measures of a panel, as many as there are colours: the largest losses."""

LEAST_SPAN = 0.1
"""Shares to each side that an axis has: noise is to look like noise."""

COLUMNS, PANEL_IN, WIDTH_IN, TITLE = 2, 2.2, 9.0, 48


def trend_chart(series: Sequence[Series]) -> Drawing | None:
    """A panel for each of the first series with two results; None if no series has as many."""
    panels = [each for each in series if len({row.made for row in each.rows if row.made and row.values}) > 1]
    shown = [(each, lines) for each in panels[:MOST_PANELS] if (lines := _lines(each))]
    if not shown:
        return None
    more = f" The first {len(shown)} of {len(panels)} series." if len(panels) > len(shown) else ""
    caption = (
        f"Measures of each series relative to its first result with them. Hollow: worse than the results before.{more}"
    )
    rows = ceil(len(shown) / COLUMNS)
    return draw("trend", caption, lambda figure: _paint(figure, shown, rows), PANEL_IN * rows, WIDTH_IN)


Lines = dict[str, list[tuple[datetime, float, bool]]]
"""By measure: time, share of the first value, and whether it is a regression."""


def _lines(series: Series) -> Lines:
    losses = sorted(
        (each for each in series.changes if each.measure not in SHARES),
        key=lambda each: (not each.worse, each.change or 0.0),
    )
    names = [each.measure for each in losses] or [name for row in series.rows[:1] for name in row.values]
    found: Lines = {}
    chosen = [name for name in names if name not in SHARES and name != "error"][:MOST_LINES]
    for name in sorted(chosen, key=[*dict.fromkeys(name for row in series.rows for name in row.values)].index):
        points = [
            (datetime.fromisoformat(row.made), row.values[name], name in {it.measure for it in row.regressions})
            for row in series.rows
            if row.made and name in row.values
        ]
        if points and points[0][1] > 0:
            found[name] = [(at, value / points[0][1], worse) for at, value, worse in points]
    return found


def _paint(figure: Any, shown: Sequence[tuple[Series, Lines]], rows: int) -> None:
    panels = figure.subplots(rows, COLUMNS, squeeze=False)
    for axes, (series, lines) in zip(panels.flat, shown, strict=False):
        for colour, (name, points) in zip(COLOURS, lines.items(), strict=False):
            axes.plot(
                [at for at, _, _ in points],
                [share for _, share, _ in points],
                "o-",
                color=colour,
                markersize=3.5,
                linewidth=1,
                label=words_of(name),
            )
            odd = [(at, share) for at, share, worse in points if worse]
            axes.plot(
                [at for at, _ in odd],
                [share for _, share in odd],
                "o",
                color=colour,
                markersize=8,
                markerfacecolor="none",
            )
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, 1 - LEAST_SPAN), max(high, 1 + LEAST_SPAN))
        axes.axhline(1.0, color=GRID, linewidth=0.8, zorder=0)
        axes.set_title(cut(f"{series.system}: {series.arrangement}", TITLE), fontsize=8)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        locator = AutoDateLocator(minticks=2, maxticks=6)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
        axes.legend(fontsize=6.5)
    for axes in panels.flat[len(shown) :]:
        axes.set_visible(False)
