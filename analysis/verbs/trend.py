"""The verb for the history of systems: `aiperf trend`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from aiperf.cli.command import Command, add_format
from aiperf.cli.console import PlainConsole, open_console
from aiperf.cli.lines import say_json, say_text
from aiperf.cli.tables import make_table, print_line
from aiperf.cli.units import number, percent, si
from aiperf.errors import EXIT_DONE, EXIT_FAILED, RunDirectoryError
from analysis.output.frames import csv_text
from analysis.output.page.vocabulary import words_of
from analysis.results.source import RunResult, try_result
from analysis.results.trend import Regression, TrendRow, trend, trend_frame

HEADINGS = ("started", "version", "framework", "status", "score", "regulated", "images/s", "error", "worse")
DATE = len("2026-01-31 12:00")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", nargs="+", type=Path, metavar="DIR|ARCHIVE|report.json", help="results of any age")
    add_format(parser, ("table", "json", "csv"))


def _trend(arguments: argparse.Namespace) -> int:
    found = [try_result(path) for path in arguments.results]
    problems = [item for item in found if isinstance(item, str)]
    series = trend(item for item in found if isinstance(item, RunResult))
    if arguments.format == "json":
        document = {"series": [[asdict(row) for row in rows] for rows in series], "problems": problems}
        say_json(json.dumps(document, indent=2))
    elif arguments.format == "csv":
        say_text(csv_text(trend_frame(series)))
    else:
        _print(series, problems)
    if not series:
        raise RunDirectoryError(*problems)
    return EXIT_FAILED if problems else EXIT_DONE


def _print(series: Sequence[Sequence[TrendRow]], problems: Sequence[str]) -> None:
    console = open_console()
    for rows in series:
        table = make_table(f"{rows[0].system}: {rows[0].arrangement}", *HEADINGS)
        for row in rows:
            table.add_row(
                (row.started or "-")[:DATE].replace("T", " "), row.version, row.framework or "-", row.status,
                si(row.measures["score_ops"], "OPS"), si(row.measures["regulated_score_ops"], "OPS"),
                si(row.measures["images_per_second"]), number(row.error),
                ", ".join(words_of(item.measure) for item in row.regressions),
            )  # fmt: skip
        console.print(table)
        for row in rows:
            _print_regressions(console, row)
    for problem in problems:
        print_line(console, f"not read: {problem}")


def _print_regressions(console: PlainConsole, row: TrendRow) -> None:
    for item in row.regressions:
        before = "the run before" if item.runs == 1 else f"the median of {item.runs} runs before"
        print_line(
            console,
            f"worse in {row.origin}: {words_of(item.measure)} is {_shown(item, item.value)}; {before}: "
            f"{_shown(item, item.median)}, limit {_shown(item, item.bound)}",
        )


def _shown(item: Regression, value: float) -> str:
    return percent(value) if item.measure.startswith("share_") else si(value, "OPS" if "_ops" in item.measure else "")


TREND = Command(
    description="Show how results of the same systems changed over time and versions, and mark what got worse.",
    example="aiperf trend runs/* --format csv",
    configure=_configure,
    execute=_trend,
)
