"""The page of a ranking: its rows with bars."""

from collections.abc import Iterator, Sequence
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
        parts=[*parts_of(ranking)],
        links={},
        notes={},
        official=OFFICIAL,
        date_of=date_of,
        words=words,
    )


Part = tuple[str, str, str, Sequence[Row], list[tuple[str, str, str]], float]
"""A table: status, its heading, basis of the energies, rows, measures and the longest bar."""


def parts_of(ranking: Ranking) -> Iterator[Part]:
    """The tables of a ranking. If it is by energy each basis has one."""
    for status, heading in STATUSES.items():
        for basis, rows in list(ranking.tables(status)) or [("", ())]:
            if rows or status == "official":
                measures = measures_of(rows, ORDERS[ranking.order])
                yield status, heading, basis, rows, measures, largest_of(rows, ranking.order)


def measures_of(rows: Sequence[Row], first: str) -> list[tuple[str, str, str]]:
    """The measure that the ranking is by, then others that any row has: key, heading, unit."""
    keys = [first, *(key for key in MEASURES if key != first and any(getattr(row, key) is not None for row in rows))]
    return [(key, *MEASURES[key]) for key in keys]


def largest_of(rows: Sequence[Row], order: Order) -> float:
    """The value whose bar is full."""
    return max((getattr(row, ORDERS[order]) or 0.0 for row in rows), default=0.0)
