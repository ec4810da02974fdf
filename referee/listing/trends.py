"""The development of a list over its editions, as a table and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from aiperf.cli.units import scale_of
from analysis.output.figures.style import Drawing, draw
from analysis.results.ranking import ORDERS, STATUSES
from referee.listing.editions import Edition
from referee.listing.submissions import day_of

SERIES = {"sum_score_ops": "sum", "first_score_ops": "first", "median_score_ops": "median", "last_score_ops": "last"}
"""Lines of the figure."""


def trend_rows(editions: Sequence[Edition]) -> list[dict[str, Any]]:
    """A row for each edition: official systems with their scores, and how many others there are."""
    return [_row(edition) for edition in editions]


def _row(edition: Edition) -> dict[str, Any]:
    ranking = edition.rankings["score"]
    official = ranking.with_status("official")
    scores = [row.score_ops for row in official if row.score_ops is not None]
    measures = [measure for order, measure in ORDERS.items() if order != "score"]
    known = {name: [value for row in official if (value := getattr(row, name)) is not None] for name in measures}
    best = {f"best_{name}": max(values, default=None) for name, values in known.items()}
    return {
        "edition": edition.name,
        "title": edition.title,
        "first": official[0].system if official else None,
        "first_score_ops": max(scores, default=None),
        "median_score_ops": median(scores) if scores else None,
        "last_score_ops": min(scores, default=None),
        "sum_score_ops": sum(scores) if scores else None,
        **best,
        **{status: len(ranking.with_status(status)) for status in STATUSES if status not in ("running", "unverified")},
        "workloads": len(edition.workloads),
        "not_read": len(edition.problems),
        "withdrawn": len(edition.withdrawn),
    }


def trend_figure(rows: Sequence[dict[str, Any]]) -> Drawing | None:
    """Sum, first, median and last score of each dated edition; None without a score."""
    dated = [row for row in rows if day_of(row["edition"]) is not None and row["sum_score_ops"] is not None]
    if not dated:
        return None
    prefix, size = scale_of(max(row["sum_score_ops"] for row in dated))

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for name, label in SERIES.items():
            axes.plot([day_of(row["edition"]) for row in dated], [row[name] / size for row in dated], marker="o",
                      label=label)  # fmt: skip
        axes.set(yscale="log", ylabel=f"score ({prefix}OPS)")
        axes.set_xticks([day_of(row["edition"]) for row in dated], [row["title"] for row in dated])
        axes.legend(loc="best")

    return draw(
        "trends", "Scores of official systems by edition: their sum, the first, the median and the last.", paint
    )
