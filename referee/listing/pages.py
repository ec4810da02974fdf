"""The files of a list's site: pages, tables as JSON and CSV next to them, and the feed."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import pandas as pd

from analysis.output.frames import csv_text
from analysis.output.page import vocabulary as words
from analysis.output.page.embed import library
from analysis.output.page.links import page_script
from analysis.output.pages import render
from analysis.results.ranking import ORDERS, Order
from analysis.results.science import SCIENCE_ORDERS, ScienceOrder, WorkloadRow
from analysis.verbs.ranking_page import date_of, parts_of
from referee.listing.editions import Edition
from referee.listing.feed import feed
from referee.listing.judging import Listed
from referee.listing.submissions import ListSettings, day_of
from referee.listing.systems import System, description_of, row_data, system_id
from referee.listing.trends import efficiencies_of, trend_figure, trend_rows

SCIENCE: Mapping[str, ScienceOrder] = {"science": "time", "valid": "valid", "valid-per-watt": "valid-per-watt"}
"""The pages of scientific workloads, with their order."""

VIEWS = {
    "score": "score",
    "regulated": "regulated score",
    "accelerator": "score per accelerator",
    "energy": "energy efficiency",
    "science": "time to quality",
    "valid": "valid operations per second",
    "valid-per-watt": "valid operations per second and watt",
}
"""The pages of an edition, with what each is sorted by."""

File = tuple[str, bytes]
"""A path in the site, and its content."""


@dataclass(frozen=True)
class Site:
    """All that the pages of a list show."""

    settings: ListSettings
    editions: Sequence[Edition]
    systems: Sequence[System]
    listed: Sequence[Listed]

    @cached_property
    def by_place(self) -> Mapping[str, Listed]:
        """Every archive that could be read, by its place."""
        return {str(each.result.origin): each for each in self.listed}

    @property
    def front(self) -> Edition:
        """The edition of the first page: the latest that has a date, or the next one."""
        return max(self.editions, key=lambda edition: (day_of(edition.name) is not None, edition.name))

    def files(self) -> Iterator[File]:
        """Every file but those of the archives."""
        for edition in self.editions:
            yield from self._edition(edition)
        yield "index.html", self._edition_page(self.front, "score", "", f"editions/{self.front.name}/")
        for system in self.systems:
            yield from self._system(system)
        rows = [_system_row(system) for system in self.systems]
        yield "systems.html", self._render("systems.html", "", "systems", rows=rows)
        yield from tables("systems", rows)
        rows = trend_rows(self.editions)
        yield (
            "trends.html",
            self._render(
                "trends.html", "", "trends", rows=rows, drawing=trend_figure(rows), efficiencies=efficiencies_of(rows)
            ),
        )
        yield from tables("trends", rows)
        yield "feed.xml", feed(self.settings, self.editions, self.systems)
        yield "assets/library.js", library().encode()
        yield "assets/report.js", page_script().encode()

    def _render(self, template: str, root: str, here: str, **values: Any) -> bytes:
        shared = {"settings": self.settings, "editions": self.editions, "root": root, "here": here}
        return render(template, __package__, **shared, **values).encode()

    def _edition(self, edition: Edition) -> Iterator[File]:
        for view in _views(edition):
            place = f"editions/{edition.name}/{view}"
            yield f"{place}.html", self._edition_page(edition, view, "../../", "")
            science = view in SCIENCE
            rows = edition.workloads_by[SCIENCE[view]] if science else edition.rankings[_order(view)].rows
            data = [row_data(row, self.by_place[row.origin]) for row in rows]
            yield from tables(place, data, _besides(edition))

    def _edition_page(self, edition: Edition, view: str, root: str, folder: str) -> bytes:
        own = [str(each.result.origin) for each in edition.listed]
        rows = edition.workloads_by[SCIENCE[view]] if view in SCIENCE else ()
        return self._render(
            "edition.html",
            root,
            edition.name,
            edition=edition,
            view=view,
            views=_views(edition),
            folder=folder,
            parts=[] if view in SCIENCE else [*parts_of(edition.rankings[_order(view)])],
            is_science=view in SCIENCE,
            benchmarks=[(name, list(own_rows)) for name, own_rows in groupby(rows, lambda row: row.benchmark)],
            links={place: f"{root}systems/{system_id(self.by_place[place])}.html" for place in own},
            notes={place: _note(self.by_place[place]) for place in own},
            by_place=self.by_place,
            system_id=system_id,
            date_of=date_of,
            words=words,
        )

    def _system(self, system: System) -> Iterator[File]:
        description, problem = description_of(system.latest)
        yield (
            f"systems/{system.id}.html",
            self._render(
                "system.html", "../", "", system=system, description=description, problem=problem, date_of=date_of
            ),
        )
        archives = [
            {
                "place": each.submission.place,
                "sha256": each.submission.digest,
                "edition": each.submission.edition,
                "status": each.result.status,
                "signature": each.signature,
                "violations": [part.model_dump() for part in each.result.report.violations],
            }
            for each in system.listed
        ]
        fields = [{"field": each.name, "recorded": each.recorded, "told": each.told} for each in description]
        yield from tables(f"systems/{system.id}", system.history, {"archives": archives, "description": fields})


def _views(edition: Edition) -> dict[str, str]:
    """The pages of an edition: those that something is known for."""
    rows = edition.workloads
    known = {view for view, order in SCIENCE.items() if any(_value(row, order) is not None for row in rows)}
    measured = known | ({"science"} if rows else set())
    return {view: words for view, words in VIEWS.items() if view not in SCIENCE or view in measured}


def _value(row: WorkloadRow, order: ScienceOrder) -> float | None:
    found: float | None = getattr(row, SCIENCE_ORDERS[order])
    return found


def _order(view: str) -> Order:
    return next(order for order in ORDERS if order == view)


def _note(listed: Listed) -> str:
    several = f"; letters of several alphabets: {', '.join(listed.alphabets).lower()}" if listed.alphabets else ""
    return f"{listed.signature if listed.result.signer else 'no valid signature'}{several}"


def _besides(edition: Edition) -> dict[str, Any]:
    """The parts of an edition in addition to its rows."""
    return {
        "edition": edition.name,
        "same": [{"place": place, "kept": kept} for place, kept in edition.same],
        "conflicts": list(edition.conflicts),
        "withdrawn": [
            {"place": each.submission.place, "on": item.on.isoformat(), "reason": item.reason}
            for each, item in edition.withdrawn
        ],
        "not_read": [{"place": problem.place, "reason": problem.reason} for problem in edition.problems],
    }


def _system_row(system: System) -> dict[str, Any]:
    return {
        "id": system.id,
        "system": system.name,
        "signer": system.signer,
        "suite": "scientific workloads" if system.is_science else "AutoML",
        "editions": ", ".join(dict.fromkeys(row["edition"] for row in system.history)),
        "best_rank": system.best_rank,
        "results": len(system.listed),
        "status": system.latest.result.status,
    }


def tables(place: str, rows: Sequence[Mapping[str, Any]], more: Mapping[str, Any] | None = None) -> Iterator[File]:
    """A table as JSON and as CSV."""
    yield f"{place}.json", json.dumps({**(more or {}), "rows": rows}, indent=1).encode() + b"\n"
    frame = pd.DataFrame(rows)
    ranks = {name: "Int64" for name in ("rank", "best_rank") if name in frame}
    yield f"{place}.csv", csv_text(frame.astype(ranks)).encode()
