"""The verb for the history of systems: `aiperf trend`."""

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import msgspec

from aiperf.cli.command import Command, add_format, write_output
from aiperf.cli.console import PlainConsole, open_console
from aiperf.cli.lines import say_json, say_text, to_open, warn
from aiperf.cli.tables import MOST_ROWS, make_table, print_line
from aiperf.cli.units import count, number, percent, si
from aiperf.clock import SystemClock, format_utc
from aiperf.config.duration import parse_duration
from aiperf.errors import EXIT_DONE, EXIT_FAILED, RunDirectoryError, UsageError
from aiperf.screening.measures import MEASURES
from analysis.output.frames import csv_text
from analysis.output.page import vocabulary as words
from analysis.output.pages import render
from analysis.results.result_store.chart import trend_chart
from analysis.results.result_store.facts import Facts, try_facts
from analysis.results.result_store.trend import By, Change, Series, TrendDocument, TrendRow, trend, trend_frame

DATE = len("2026-01-31 12:00")
OF_RUNS = {"score_ops": "score", "regulated_score_ops": "regulated", "images_per_second": "images/s", "error": "error"}
"""Measures of the table of a system, and their headings."""

DROPPED = ("framework", "accepted", "version", "regulated", "error", "images/s", "status")
"""Columns that a narrow terminal leaves out, in this order."""

MOST_SERIES = 24
"""Series whose results the page lists."""

CENTURY_S = 100 * 366 * 86400.0


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "results",
        nargs="*",
        type=Path,
        metavar="DIR|ARCHIVE|report.json",
        help="runs, screenings (folder or screen.json) and acceptances (JSON) of any age",
    )
    parser.add_argument("--store", type=Path, metavar="FILE", help="also the results in a store (aiperf store add)")
    parser.add_argument(
        "--by",
        choices=get_args(By),
        default="system",
        help="a series for each system, or for each device of each screened node (default: %(default)s)",
    )
    parser.add_argument(
        "--since",
        type=_moment,
        metavar="TIME|DATE",
        help="show results from then on, such as 30d or 2026-10-01, next to all before",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write the page with the figure")
    add_format(parser, ("table", "json", "csv"))


def _moment(text: str) -> str:
    """UTC of a day, or of this long ago."""
    try:
        day = datetime.fromisoformat(text)
    except ValueError:
        try:
            return format_utc(SystemClock().utc_ms() - int(1000 * parse_duration(text, CENTURY_S)))
        except (ValueError, OverflowError) as error:
            raise argparse.ArgumentTypeError(f"{error}, or a day such as 2026-10-01") from None
    try:
        return format_utc(int(1000 * (day if day.tzinfo else day.replace(tzinfo=UTC)).timestamp()))
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text} is not a day of this millennium") from None


def _trend(arguments: argparse.Namespace) -> int:
    if not arguments.results and arguments.store is None:
        raise UsageError("name results, or a store of them: --store FILE")
    found = [try_facts(path) for path in arguments.results]
    problems = tuple(item for item in found if isinstance(item, str))
    facts = _stored(arguments.store) + [item for item in found if isinstance(item, Facts)]
    series = trend(facts, arguments.by, arguments.since)
    document = TrendDocument(by=arguments.by, since=arguments.since, series=series, problems=problems)
    if arguments.html is not None:
        write_output(arguments.html, trend_page(document))
        warn(f"next: {to_open(arguments.html)}")
    if arguments.format == "json":
        say_json(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    elif arguments.format == "csv":
        say_text(csv_text(trend_frame(series)))
    elif series:
        _print(document)
    if not series:
        raise RunDirectoryError(*(problems or [_nothing(arguments)]))
    return EXIT_FAILED if problems else EXIT_DONE


def _stored(store: Path | None) -> list[Facts]:
    if store is None:
        return []
    from analysis.results.result_store.store import read_store  # noqa: PLC0415  (SQLite, which a Python may lack)

    return read_store(store)


def _nothing(arguments: argparse.Namespace) -> str:
    by_node = arguments.by == "node"
    screenings = "screenings (aiperf screen), whose nodes --by node shows" if by_node else "runs or screenings"
    since = f" since {arguments.since}" if arguments.since is not None else ""
    return f"there are no {screenings}{since}"


def value_text(measure: str, value: float) -> str:
    """A value in its unit."""
    if measure in MEASURES:
        return MEASURES[measure].text(value)
    if measure.startswith("share_"):
        return percent(value)
    if measure == "error":
        return number(value)
    return si(value, "OPS" if "_ops" in measure else "OP/J" if measure == "operations_per_joule" else "")


# The page.


def trend_page(document: TrendDocument) -> str:
    """The page of a trend as one file."""
    series, drawing = document.series, trend_chart(document.series)
    return render(
        "trend.html",
        series=series,
        by=document.by,
        since=document.since,
        problems=document.problems,
        results=len({row.origin for each in series for row in each.rows}),
        worse=[(each, change) for each in series for change in each.worse],
        drawings={"trend": drawing} if drawing is not None else {},
        names_of=_names,
        text=value_text,
        words=words,
        most=MOST_ROWS,
        most_series=MOST_SERIES,
    )


def _names(series: Series) -> list[str]:
    """The measures that tables of a series have."""
    if series.kind == "run":
        return [*OF_RUNS]
    return [name for name in MEASURES if any(name in row.values for row in series.rows)]


# The tables.


def _print(document: TrendDocument) -> None:
    console = open_console()
    if document.by == "node":
        _print_nodes(console, document.series)
    else:
        for series in document.series:
            _print_system(console, series)
    for problem in document.problems:
        print_line(console, f"not read: {problem}")


def _print_system(console: PlainConsole, series: Series) -> None:
    names = _names(series)
    heads = [OF_RUNS.get(name, name) for name in names]
    is_run = series.kind == "run"
    table = make_table(
        f"{series.system}: {series.arrangement}",
        "date",
        "version",
        *["framework"] * is_run,
        "status",
        *["accepted"] * is_run,
        *heads,
        "worse",
        dropped=DROPPED,
    )
    for row in series.rows:
        accepted = {None: "-", True: "yes", False: "no"}[row.accepted]
        table.add_row(
            (row.made or "-")[:DATE].replace("T", " "),
            row.version,
            *[row.framework or "-"] * is_run,
            row.status,
            *[accepted] * is_run,
            *(value_text(name, row.values[name]) if name in row.values else "-" for name in names),
            ", ".join(words.words_of(item.measure) for item in row.regressions),
        )
    console.print(table)
    for row in series.rows:
        _print_regressions(console, row)
    for change in series.worse:
        print_line(console, f"worse than before: {words.words_of(change.measure)} of {series.system}: {_words(change)}")


def _words(change: Change) -> str:
    """The latest results next to the first ones."""
    by = "" if change.change is None else f" ({percent(change.change)})"
    return (
        f"{value_text(change.measure, change.value)} in {count(change.results, 'latest result')}, "
        f"{value_text(change.measure, change.median)} in {count(change.earlier, 'earlier one')}{by}, "
        f"limit {value_text(change.measure, change.limit)}"
    )


def _print_regressions(console: PlainConsole, row: TrendRow) -> None:
    for item in row.regressions:
        before = "the result before" if item.earlier == 1 else f"the median of {item.earlier} results before"
        print_line(
            console,
            f"worse in {row.origin}: {words.words_of(item.measure)} is {value_text(item.measure, item.value)}; "
            f"{before}: {value_text(item.measure, item.median)}, limit {value_text(item.measure, item.limit)}",
        )


def _print_nodes(console: PlainConsole, series: Sequence[Series]) -> None:
    """One row for each device, those that got worse first."""
    table = make_table(
        "Devices of nodes over time",
        "node",
        "device",
        "screenings",
        "latest",
        "status",
        "largest loss",
        "worse",
        dropped=("latest", "largest loss"),
    )
    for each in series[:MOST_ROWS]:
        last = each.rows[-1]
        largest = min(each.changes, key=lambda change: change.change or 0.0, default=None)
        table.add_row(
            each.system,
            each.arrangement,
            f"{len(each.rows)}",
            (last.made or "-")[:DATE].replace("T", " "),
            last.status,
            f"{largest.measure} {percent(largest.change)}" if largest is not None else "-",
            ", ".join(change.measure for change in each.worse),
        )
    console.print(table)
    if len(series) > MOST_ROWS:
        print_line(console, f"and {len(series) - MOST_ROWS} more devices: --format csv has all")
    if len({each.system for each in series}) == 1:
        print_line(console, f"{series[0].system} is the only node: add screenings of others to see which one differs")
    for each in series[:MOST_ROWS]:
        for change in each.worse:
            print_line(
                console, f"worse than before: {change.measure} of {each.system}, {each.arrangement}: {_words(change)}"
            )


TREND = Command(
    description="Show how results of the same systems, and screenings of the same nodes, changed over time and "
    "versions, and mark what got worse.",
    example="aiperf trend --store results.sqlite --since 30d --by node",
    configure=_configure,
    execute=_trend,
)
