"""The page of a ranking: its rows with bars."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from analysis.output.page import vocabulary as words
from analysis.output.pages import render
from analysis.results.ranking import ORDERS, STATUSES, Order, Ranking, Row
from analysis.results.science import WorkloadRow

OFFICIAL = "an official run meets every rule; aiperf check DIR names those that a run does not meet"
"""The sentence for a ranking without official runs."""

MEASURES = {
    "score_ops": ("score", "OPS"),
    "regulated_score_ops": ("regulated score", "OPS"),
    "ops_per_accelerator": ("per accelerator", "OPS"),
    "operations_per_joule": ("energy efficiency", "OP/J"),
}
"""Headings and units of the measures, in the order of their columns after that of the ranking."""


def date_of(moment: str | None) -> str:
    """The day of an ISO time, such as 22 Nov 2026; a dash for None."""
    return " ".join(words.readable_time(moment).split()[:3]) if moment is not None else "-"


def ranking_page(ranking: Ranking, workloads: Sequence[WorkloadRow] = (), in_order: str = "time to quality") -> str:
    """The page of a ranking as one file.

    It leads to no page of a submission, which its submitter may have written.

    Rows of workloads are those of `rank_workloads`, by what `in_order` says; each workload,
    framework and size has a table.
    """
    return render(
        "ranking.html",
        ranking=ranking,
        in_order=in_order,
        benchmarks=[(benchmark, list(rows)) for benchmark, rows in groupby(workloads, lambda row: row.benchmark)],
        parts=[(status, heading, rows, measures_of(rows, ORDERS[ranking.order]), largest_of(rows, ranking.order))
               for status, heading in STATUSES.items()
               if (rows := ranking.with_status(status)) or status == "official"],
        links={},
        notes={},
        official=OFFICIAL,
        date_of=date_of,
        words=words,
    )  # fmt: skip


def measures_of(rows: Sequence[Row], first: str) -> list[tuple[str, str, str]]:
    """The measure that the ranking is by, then others that any row has: key, heading, unit."""
    keys = [first, *(key for key in MEASURES if key != first and any(getattr(row, key) is not None for row in rows))]
    return [(key, *MEASURES[key]) for key in keys]


def largest_of(rows: Sequence[Row], order: Order) -> float:
    """The value whose bar is full."""
    return max((getattr(row, ORDERS[order]) or 0.0 for row in rows), default=0.0)
