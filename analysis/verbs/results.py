"""The verbs for several results: `aiperf rank` and `aiperf compare`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from aiperf.cli.command import Command, add_format, write_output
from aiperf.cli.console import open_console
from aiperf.cli.units import number, si
from aiperf.errors import EXIT_DONE, EXIT_FAILED, RunDirectoryError
from analysis.output.pages import render
from analysis.output.tables import make_table, print_line
from analysis.results.comparison import ReportComparison, compare
from analysis.results.ranking import ORDERS, VERDICT_ORDER, Ranking, rank
from analysis.results.source import RunResult, read_result, try_result

HEADINGS = ("rank", "system", "replicas", "accelerators", "ranks", "score", "regulated", "error", "per accelerator",
            "per joule", "numbers", "rules not met")  # fmt: skip


def _configure_rank(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", nargs="+", type=Path, metavar="DIR|ARCHIVE|report.json", help="results to rank")
    parser.add_argument("--by", choices=list(ORDERS), default="score", help="what to sort by (default: %(default)s)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write the ranking as a page")
    add_format(parser, ("table", "json", "csv"))


def _rank(arguments: argparse.Namespace) -> int:
    found = [try_result(path) for path in arguments.results]
    problems = [item for item in found if isinstance(item, str)]
    ranking = rank((item for item in found if isinstance(item, RunResult)), arguments.by, problems)
    if arguments.html is not None:
        write_output(arguments.html, render("ranking.html", ranking=ranking))
    if arguments.format == "json":
        document = {"order": ranking.order, "rows": [asdict(row) for row in ranking.rows], "problems": problems}
        print(json.dumps(document, indent=2))  # noqa: T201
    elif arguments.format == "csv":
        print(ranking.frame().to_csv(index=False).rstrip())  # noqa: T201
    else:
        _print_ranking(ranking)
    if not ranking.rows:
        raise RunDirectoryError("\n".join(problems))
    return EXIT_FAILED if problems else EXIT_DONE


def _print_ranking(ranking: Ranking) -> None:
    console = open_console()
    for status in VERDICT_ORDER:
        rows = ranking.with_status(status)
        if not rows:
            continue
        table = make_table(f"{status.capitalize()}, by {ranking.order}", *HEADINGS)
        for row in rows:
            table.add_row(
                str(row.rank or "-"), row.system, str(row.replicas), str(row.accelerators), number(row.ranks, 0),
                si(row.score_ops, "OPS"), si(row.regulated_score_ops, "OPS"), number(row.error),
                si(row.ops_per_accelerator, "OPS"), si(row.operations_per_joule), row.source, row.reasons,
            )  # fmt: skip
        console.print(table)
    for problem in ranking.problems:
        print_line(console, f"not read: {problem}")


def _configure_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", type=Path, metavar="A", help="run directory, archive or report.json")
    parser.add_argument("second", type=Path, metavar="B", help="the same, to compare with A")
    add_format(parser)


def _compare(arguments: argparse.Namespace) -> int:
    comparison = compare(read_result(arguments.first).report, read_result(arguments.second).report)
    if arguments.format == "json":
        measures = [{**asdict(m), "ratio": m.ratio, "worse": m.worse} for m in comparison.measures]
        document = {"settings": [asdict(item) for item in comparison.settings], "measures": measures}
        print(json.dumps(document, indent=2))  # noqa: T201
    else:
        _print_comparison(comparison)
    return EXIT_DONE


def _print_comparison(comparison: ReportComparison) -> None:
    console = open_console()
    table = make_table("Settings that differ", "setting", "A", "B")
    for difference in comparison.settings:
        table.add_row(difference.key, difference.first, difference.second)
    console.print(table if comparison.settings else "All settings are the same.")
    table = make_table("Results", "", "A", "B", "B / A")
    for measure in comparison.measures:
        table.add_row(measure.name, si(measure.first), si(measure.second), number(measure.ratio, 3))
    console.print(table)
    worse = ", ".join(f"{m.name} ({number(m.ratio, 3)} x)" for m in comparison.slower)
    print_line(console, f"worse in B: {worse or 'nothing'}")


RANK = Command(
    description="Rank results. Run directories and archives are recomputed; a bare report.json is taken as it is.",
    example="aiperf rank runs/* --by regulated --html ranking.html",
    configure=_configure_rank,
    execute=_rank,
)

COMPARE = Command(
    description="Put two results side by side: settings that differ, scores, phases, and what got worse.",
    example="aiperf compare runs/before runs/after",
    configure=_configure_compare,
    execute=_compare,
)
