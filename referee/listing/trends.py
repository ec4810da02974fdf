"""The development of a list over its editions, as a table and a figure."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from aiperf.cli.units import scale_of
from analysis.output.figures.style import Drawing, draw
from analysis.results.ranking import ORDERS, STATUSES, place_of_basis
from referee.listing.editions import Edition
from referee.listing.submissions import day_of

SERIES = {"sum_score_ops": "sum", "first_score_ops": "first", "median_score_ops": "median", "last_score_ops": "last"}
"""Lines of the figure."""

BEST_EFFICIENCY = "best_operations_per_joule, "
"""Beginning of the name of a column; the basis of its energies follows."""


def trend_rows(editions: Sequence[Edition]) -> list[dict[str, Any]]:
    """A row for each edition: official systems with their scores, and how many others there are.

    Energies are compared within one basis, which has a column for its best efficiency.
    """
    by_energy = [_efficiencies(edition) for edition in editions]
    bases = sorted({basis for known in by_energy for basis in known}, key=place_of_basis)
    return [
        _row(edition) | {f"{BEST_EFFICIENCY}{basis}": known.get(basis) for basis in bases}
        for edition, known in zip(editions, by_energy, strict=True)
    ]


def _efficiencies(edition: Edition) -> dict[str, float]:
    """The best operations per joule of official systems, by the basis of their energies."""
    best: dict[str, float] = {}
    for row in edition.rankings["energy"].with_status("official"):
        if row.energy_basis and row.operations_per_joule is not None:
            best[row.energy_basis] = max(best.get(row.energy_basis, 0.0), row.operations_per_joule)
    return best


def efficiencies_of(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """The columns of energy efficiencies, with their headings."""
    return [
        (name, f"best energy efficiency: {name.removeprefix(BEST_EFFICIENCY)}")
        for name in (rows[0] if rows else ())
        if name.startswith(BEST_EFFICIENCY)
    ]


def _row(edition: Edition) -> dict[str, Any]:
    ranking = edition.rankings["score"]
    official = ranking.with_status("official")
    scores = [row.score_ops for row in official if row.score_ops is not None]
    measures = [measure for order, measure in ORDERS.items() if order not in ("score", "energy")]
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
            axes.plot(
                [day_of(row["edition"]) for row in dated], [row[name] / size for row in dated], marker="o", label=label
            )
        axes.set(yscale="log", ylabel=f"score ({prefix}OPS)")
        axes.set_xticks([day_of(row["edition"]) for row in dated], [row["title"] for row in dated])
        axes.legend(loc="best")

    return draw(
        "trends", "Scores of official systems by edition: their sum, the first, the median and the last.", paint
    )
