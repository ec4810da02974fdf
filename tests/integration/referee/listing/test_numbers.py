"""Every number of a list: recomputed from the archives, and the same on pages and in all files."""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from html.parser import HTMLParser
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from aiperf.cli.units import count, interval, number, si
from aiperf.config.duration import format_duration
from analysis.report.model import Report
from analysis.results.recomputed_report import check_result
from analysis.results.science import SCIENCE_ORDERS
from analysis.verbs.ranking_page import MEASURES
from referee.listing.editions import editions_of
from referee.listing.judging import Listed
from referee.listing.pages import SCIENCE, VIEWS, Site
from referee.listing.reading import Facts
from referee.listing.submissions import ListSettings
from referee.listing.systems import systems_of
from tests.integration.referee.listing.conftest import listed

Row = Mapping[str, Any]


class Tables(HTMLParser):
    """The cells of each row of all tables of a page, by the headings of their columns."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[dict[str, str]] = []
        self._headings: list[str] = []
        self._cells: list[str] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Begin a row or a cell."""
        if tag == "tr":
            self._cells = []
        elif tag in ("th", "td"):
            self._cells.append("")
            self._inside = True

    def handle_data(self, data: str) -> None:
        """Add to the cell."""
        if self._inside:
            self._cells[-1] += data

    def handle_endtag(self, tag: str) -> None:
        """End a cell, or a row: one of headings begins a table."""
        if tag in ("th", "td"):
            self._inside = False
            self._is_heading = tag == "th"
        elif tag == "tr" and self._is_heading:
            self._headings = self._cells
        elif tag == "tr":
            cells = (re.sub(r"\s+", " ", cell).strip() for cell in self._cells)
            self.rows.append(dict(zip(self._headings, cells, strict=True)))


def data_of(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text()))


# From the archives.


def automl(report: Report, order: str) -> dict[str, float | None]:
    """The numbers of a row by the report of a check."""
    score, statistics = report.score_ops, report.statistics
    per = report.accelerators if order == "accelerator" else 1
    low = high = None
    if score is not None and statistics is not None and order != "energy" and per:
        part = statistics.regulated_score_ops if order == "regulated" else statistics.score_ops
        if part is not None and part.low is not None and part.high is not None:
            low, high = part.low / per, part.high / per
    return {
        "replicas": report.present,
        "replicas_asked": report.replicas,
        "accelerators": report.accelerators,
        "ranks": report.ranks,
        "score_ops": score,
        "regulated_score_ops": report.regulated_score_ops,
        "error": report.error,
        "operations_per_joule": report.energy.operations_per_joule,
        "nodes": 1,
        "runs": 1,
        "failures": len(report.failures),
        "trials": len(report.trials),
        "replicas_lost": sum(part.what.startswith("replica ") for part in report.failures),
        "ops_per_accelerator": score / report.accelerators if score is not None and report.accelerators else None,
        "interval_low": low,
        "interval_high": high,
    }


def science(report: Report, row: Row) -> dict[str, float | None]:
    (part,) = (part for part in report.workloads if part.workload == row["workload"])
    known = {"failures": len(report.failures)}
    return {
        name: known[name] if name in known else getattr(part, name) for name, value in row.items() if is_number(value)
    }


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def test_every_number_of_an_edition_is_that_of_a_check_of_its_archive(built: Path, made: Path) -> None:
    files = sorted(built.glob("editions/*/*.json"))
    assert len(files) == 2 * 7 + 4, "two editions with scientific workloads, one without"
    for file in files:
        for row in data_of(file)["rows"]:
            report = check_result(made / row["origin"]).report
            expected = science(report, row) if file.stem in SCIENCE else automl(report, file.stem)
            if row["status"] == "invalid":
                expected |= dict.fromkeys(("score_ops", "regulated_score_ops", "interval_low", "interval_high"))
            numbers = {name: value for name, value in row.items() if is_number(value) or name in expected}
            assert numbers == expected, (file, row["origin"])


def test_the_last_lines_on_the_pages_of_systems_are_those_of_a_check(built: Path, made: Path) -> None:
    found = 0
    for file in built.glob("systems/*.json"):
        text = file.with_suffix(".html").read_text()
        for archive in data_of(file)["archives"]:
            line = check_result(made / archive["place"]).report.final_line
            if archive["status"] == "invalid":
                line = re.sub(r"(score|regulated)=\S+", r"\1=invalid", line).replace("UNOFFICIAL", "FAILED")
                line = line.replace("SIMULATED", "FAILED")
            assert f"<code>{line}</code>" in text
            found += 1
    assert found == 8


# From one table to the others and the pages.


@pytest.fixture(scope="module")
def official(facts: Facts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with official results of three editions, some of them with accelerators and energy."""

    def system(
        place: str, name: str, score: float, accelerators: int, efficiency: float | None, basis: str = "sensors, nodes"
    ) -> Listed:
        own = listed(facts, place, score, name=name)
        report = own.result.report
        known = {"operations_per_joule": efficiency, "basis": basis if efficiency is not None else ""}
        energy = report.energy.model_copy(update=known)
        changes = {"accelerators": accelerators, "energy": energy, "regulated_score_ops": 1.7 * score, "error": 0.123}
        return replace(own, result=replace(own.result, report=report.model_copy(update=changes)))

    every = [
        system("2025-11/a.tar.gz", "alpha", 1.25e15, 8, 3.1e10),
        system("2025-11/b.tar.gz", "beta", 2.5e15, 16, None),
        system("2026-06/a.tar.gz", "alpha", 3.75e15, 24, 4.4e10),
        system("2026-06/c.tar.gz", "gamma", 0.5e15, 0, None),
        system("2026-11/b.tar.gz", "beta", 2.25e15, 16, 1.9e10, "meters, Level 2, whole system"),
        listed(facts, "2026-11/u.tar.gz", 9e15, "unofficial", "delta"),
    ]
    folder = tmp_path_factory.mktemp("official")
    editions = editions_of(every, (), ())
    for name, content in Site(ListSettings(), editions, systems_of(every, editions), every).files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture(params=["built", "official"])
def site(request: pytest.FixtureRequest) -> Path:
    """Sites of archives, and of official results."""
    return Path(request.getfixturevalue(request.param))


def test_a_csv_has_the_rows_of_its_json_with_all_digits(site: Path) -> None:
    files = [file for file in site.rglob("*.json") if file.with_suffix(".csv").is_file()]
    assert len(files) > 10
    for file in files:
        with file.with_suffix(".csv").open(newline="") as stream:
            table = list(csv.DictReader(stream))
        rows = data_of(file)["rows"]
        assert len(rows) == len(table)
        for row, cells in zip(rows, table, strict=True):
            assert row.keys() == cells.keys()
            for name, value in row.items():
                if isinstance(value, bool):
                    assert cells[name] == str(value), name
                else:
                    assert float(cells[name]) == value if is_number(value) else bool(cells[name]) == bool(value), name


def shown(row: Row, measure: str | None = None) -> dict[str, str]:
    """The cells with numbers of a row of a list, by their headings."""
    if "workload" in row:
        reached, joules = row["time_to_quality_s"], row["valid_operations_per_joule"]
        time = "not reached" if reached is None else format_duration(reached)
        if row["time_to_quality_low_s"] is not None:
            ends = (row["time_to_quality_low_s"], row["time_to_quality_high_s"])
            time += f" 95 %: {' to '.join(map(format_duration, ends))}"
        return {
            "rank": f"{row['rank'] or '-'}",
            "reached": f"{row['reached']} of {row['instances']}",
            "time to quality": time,
            "valid": si(row["valid_ops"], "OPS") + ("" if joules is None else f" {si(joules, 'OP/J')}"),
            "epochs": number(row["epochs_to_quality"], 1),
            "energy": si(row["energy_to_quality_j"], "J"),
            "cost": number(row["cost_to_quality"], 4),
            "sustained": si(row["sustained_ops"], "OPS"),
            "failures": f"{row['failures']}",
        }
    cells = {heading: si(row[name], unit) for name, (heading, unit) in MEASURES.items()}
    if measure is not None and row["interval_low"] is not None:
        heading, unit = MEASURES[measure]
        cells[heading] += f" 95 %: {interval(row['interval_low'], row['interval_high'], unit)}"
    devices = f"{row['accelerators']} x {row['accelerator'] or 'unknown'}" if row["accelerators"] else "-"
    return {
        **cells,
        "rank": f"{row['rank'] or '-'}",
        "nodes": f"{row['nodes']}",
        "accelerators": devices,
        "error": number(row["error"]),
        "runs": f"{row['runs']}",
        "replicas": f"{row['replicas']}",
        "failures": failures_of(row),
    }


def failures_of(row: Row) -> str:
    """The failures of a row of AutoML in words."""
    if not row["failures"]:
        return "0"
    lost = f", {count(row['replicas_lost'], 'replica')} lost" if row["replicas_lost"] else ""
    return f"{row['failures']} in {count(row['trials'], 'trial')}{lost}"


WORDS = {
    "system",
    "processor",
    "rules not met",
    "status",
    "edition",
    "workload",
    "signer",
    "suite",
    "editions",
    "first",
}
"""Columns without numbers of a result: what stands in them is compared elsewhere."""


def compare(cells: Mapping[str, str], expected: Mapping[str, str], page: Path) -> None:
    """Compare all cells of a row but those of words."""
    numbers = {heading: text for heading, text in cells.items() if heading not in WORDS}
    assert numbers == {heading: expected[heading] for heading in numbers}, page


ORDERS: dict[str, str | None] = {
    "score": "score_ops",
    "regulated": "regulated_score_ops",
    "accelerator": "ops_per_accelerator",
    "energy": "operations_per_joule",
    **dict.fromkeys(SCIENCE),
}


def test_the_pages_of_an_edition_show_the_numbers_of_its_tables(site: Path) -> None:
    pages = sorted(site.glob("editions/*/*.html"))
    assert len(pages) >= 12
    for page in pages:
        rows = data_of(page.with_suffix(".json"))["rows"]
        tables = Tables(page.read_text()).rows
        assert len(tables) == len(rows)
        for cells, row in zip(tables, rows, strict=True):
            assert row["origin"] in cells["system"]
            if "workload" not in row:
                assert f"{row['replicas']} replica, {row['ranks']} rank;" in cells["system"]
            compare(cells, shown(row, ORDERS[page.stem]), page)
        if page.stem not in SCIENCE:
            counts = {
                status: sum(row["status"] == status for row in rows)
                for status in ("official", "unofficial", "invalid", "simulated")
            }
            headings: Counter[str] = Counter()  # each basis of energies has a table, all of one status
            for status, rows_of_one in re.findall(r"<h2[^>]*>(\w+): (\d+)</h2>", page.read_text()):
                headings[status.lower()] += int(rows_of_one)
            assert {
                status: rows_in for status, rows_in in counts.items() if rows_in or status == "official"
            } == headings


def rows_of_editions(site: Path, name: str = "score") -> Iterator[tuple[str, Row]]:
    for file in sorted(site.glob(f"editions/*/{name}.json")):
        for row in data_of(file)["rows"]:
            yield file.parent.name, row


def test_workloads_are_in_the_order_of_their_page(built: Path) -> None:
    for name, order in SCIENCE.items():
        pages = sorted(built.glob(f"editions/*/{name}.html"))
        assert pages
        for page in pages:
            assert f"by {VIEWS[name]}, within one workload" in page.read_text()
            rows = data_of(page.with_suffix(".json"))["rows"]
            for _, own in groupby(rows, lambda row: (row["workload"], row["framework"], row["size"], row["status"])):
                values = [value for row in own if (value := row[SCIENCE_ORDERS[order]]) is not None]
                assert values == sorted(values, reverse=order != "time")


def test_the_pages_of_systems_show_the_numbers_of_their_editions(site: Path) -> None:
    every = [*rows_of_editions(site), *rows_of_editions(site, "science")]
    rows = {row["id"]: row for row in data_of(site / "systems.json")["rows"]}
    shown_rows = Tables((site / "systems.html").read_text()).rows
    assert rows.keys() == {row["system_id"] for _, row in every}
    for cells, (name, row) in zip(shown_rows, rows.items(), strict=True):
        data = data_of(site / f"systems/{name}.json")
        own = [{"edition": edition, **each} for edition, each in every if each["system_id"] == name]
        assert sorted(data["rows"], key=repr) == sorted(own, key=repr)
        ranks = [each["rank"] for each in own if each["rank"] is not None]
        assert (row["best_rank"], row["results"]) == (min(ranks, default=None), len(data["archives"]))
        compare(cells, {"best rank": f"{row['best_rank'] or '-'}", "results": f"{row['results']}"}, site)
        page = site / f"systems/{name}.html"
        history = [each for each in Tables(page.read_text()).rows if "edition" in each]
        for line, each in zip(history, data["rows"], strict=True):
            assert line["edition"] == each["edition"]
            compare(line, shown(each), page)


def best_efficiency(rows: list[Row], basis: str) -> float | None:
    known = [each["operations_per_joule"] for each in rows if each["energy_basis"] == basis]
    return max(known, default=None)


def test_energies_by_meters_and_by_sensors_have_trends_of_their_own(official: Path) -> None:
    found = {
        row["edition"]: [value for name, value in row.items() if name.startswith("best_operations_per_joule")]
        for row in data_of(official / "trends.json")["rows"]
    }
    # Meters first. The earlier result of alpha counts in the last edition, too.
    assert found == {"2025-11": [None, 3.1e10], "2026-06": [None, 4.4e10], "2026-11": [1.9e10, 4.4e10]}


def test_the_trends_are_those_of_the_rows_of_the_editions(site: Path) -> None:
    rows = data_of(site / "trends.json")["rows"]
    tables = Tables((site / "trends.html").read_text()).rows
    bases = sorted({each["energy_basis"] for _, each in rows_of_editions(site) if each["status"] == "official"} - {""})
    assert [row["edition"] for row in rows] == sorted(file.name for file in (site / "editions").iterdir())
    for cells, row in zip(tables, reversed(rows), strict=True):
        own = [each for edition, each in rows_of_editions(site) if edition == row["edition"]]
        official = [each for each in own if each["status"] == "official"]
        scores = [each["score_ops"] for each in official]
        besides = data_of(site / f"editions/{row['edition']}/score.json")
        expected = {
            "first_score_ops": max(scores, default=None),
            "last_score_ops": min(scores, default=None),
            "median_score_ops": median(scores) if scores else None,
            "sum_score_ops": sum(scores) if scores else None,
            **{
                f"best_{name}": max((each[name] for each in official if each[name] is not None), default=None)
                for name in list(MEASURES)[1:-1]
            },
            **{f"best_operations_per_joule, {basis}": best_efficiency(official, basis) for basis in bases},
            **{
                status: sum(each["status"] == status for each in own)
                for status in ("official", "unofficial", "invalid", "simulated")
            },
            "workloads": sum(edition == row["edition"] for edition, _ in rows_of_editions(site, "science")),
            "not_read": len(besides["not_read"]),
            "withdrawn": len(besides["withdrawn"]),
        }
        assert {name: value for name, value in row.items() if name not in ("edition", "title", "first")} == expected
        ops = {
            heading: si(row[name], "OPS")
            for heading, name in (
                ("first score", "first_score_ops"),
                ("median", "median_score_ops"),
                ("last", "last_score_ops"),
                ("sum", "sum_score_ops"),
                ("best regulated score", "best_regulated_score_ops"),
                ("best per accelerator", "best_ops_per_accelerator"),
            )
        }
        compare(cells, {
            **ops, **{f"best energy efficiency: {basis}": si(row[f"best_operations_per_joule, {basis}"], "OP/J")
                      for basis in bases},
            "official": f"{row['official']}", "others": f"{row['unofficial'] + row['invalid'] + row['simulated']}",
        }, site / "trends.html")  # fmt: skip


def test_the_scores_of_the_feed_are_those_of_the_rows(site: Path) -> None:
    titles = re.findall(r"<title>(.*?)</title>", (site / "feed.xml").read_text())
    for _, row in rows_of_editions(site):
        score = f"{si(row['score_ops'], 'OPS')}, " if row["score_ops"] is not None else ""
        assert any(title.endswith(f": {score}{row['status']}") for title in titles), row
