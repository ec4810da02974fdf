"""The verb `aiperf compare`, and the options and tables of `aiperf rank` (`referee.rank`)."""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path

from aiperf.cli.command import Command, add_format, write_output
from aiperf.cli.console import open_console
from aiperf.cli.lines import say_json, say_text
from aiperf.cli.tables import MOST_NAMED, make_table, print_line
from aiperf.cli.units import interval, number, of_asked, si
from aiperf.config.duration import format_duration
from aiperf.errors import EXIT_DONE, EXIT_FAILED, RunDirectoryError, UsageError
from analysis.output.frames import csv_text
from analysis.output.page.vocabulary import ENDS, words_of
from analysis.results.comparison import Measure, ReportComparison, compare
from analysis.results.heads import read_arrivals
from analysis.results.ranking import ORDERS, Order, Ranking, Row, rank
from analysis.results.science import (
    SCIENCE_ORDERS,
    ScienceOrder,
    WorkloadRow,
    look_at_workloads,
    rank_workloads,
    workload_frame,
)
from analysis.results.signatures import check_signers
from analysis.results.source import Repeat, RunResult, read_result, try_result, why_unread
from analysis.verbs.figures import add_figure, write_figures
from analysis.verbs.ranking_page import OFFICIAL, date_of, parts_of, ranking_page

# Tables of scientific workloads, one for each benchmark.


IN_ORDER: dict[ScienceOrder, str] = {
    "time": "time to quality",
    "valid": "valid operations per second",
    "valid-per-watt": "valid operations per second and watt",
}
"""Orders of workloads in words."""


def print_workloads(rows: Sequence[WorkloadRow], order: ScienceOrder) -> None:
    """Print one table for each workload, framework and size."""
    for (workload, framework, size), own in groupby(rows, key=lambda row: row.benchmark):
        table = make_table(
            f"{workload} on {framework}, {size} size, by {IN_ORDER[order]}", "rank", "system", "status", "reached",
            "time to quality (s)", "95 % of it", "epochs", "energy", "cost", "sustained", "valid", "valid per watt",
            "failures", "rules not met", left=("system", "status", "rules not met"),
            dropped=("rules not met", "epochs", "cost", "sustained", "95 % of it", "valid per watt", "energy",
                     "failures"),
        )  # fmt: skip
        for row in own:
            table.add_row(
                str(row.rank or "-"),
                row.system,
                row.status,
                f"{row.reached} of {row.instances}",
                number(row.time_to_quality_s, 3),
                interval(row.time_to_quality_low_s, row.time_to_quality_high_s),
                number(row.epochs_to_quality, 1),
                si(row.energy_to_quality_j, "J"),
                "-" if row.cost_to_quality is None else f"{row.cost_to_quality:.4g}",
                si(row.sustained_ops, "OPS"),
                si(row.valid_ops, "OPS"),
                si(row.valid_operations_per_joule, "OP/J"),
                number(row.failures, 0),
                row.reasons or "-",
            )
        open_console().print(table)


# The tables of AutoML, and both verbs.

COLUMNS: dict[str, Callable[[Row], str]] = {
    "rank": lambda row: str(row.rank or "-"),
    "system": lambda row: row.system,
    "run": lambda row: row.run,
    "nodes": lambda row: number(row.nodes, 0),
    "processor": lambda row: row.processor or "-",
    "accelerator": lambda row: f"{row.accelerators} x {row.accelerator or 'unknown'}" if row.accelerators else "-",
    "site": lambda row: row.site or "-",
    "network": lambda row: row.network or "-",
    "cooling": lambda row: row.cooling or "-",
    "replicas": lambda row: of_asked(row.replicas, row.replicas_asked),
    "score": lambda row: si(row.score_ops, "OPS"),
    "regulated": lambda row: si(row.regulated_score_ops, "OPS"),
    "95 % interval": lambda row: interval(row.interval_low, row.interval_high, "OPS"),
    "error": lambda row: number(row.error),
    "failures": lambda row: number(row.failures, 0),
    "per accelerator": lambda row: si(row.ops_per_accelerator, "OPS"),
    "energy": lambda row: si(row.operations_per_joule, "OP/J"),
    "date": lambda row: date_of(row.started),
    "dated": lambda row: "yes" if row.dated else "no",
    "runs": lambda row: str(row.runs),
    "signer": lambda row: row.signer or "-",
    "rules not met": lambda row: row.reasons or "-",
}
"""The table of a ranking; columns without any value are left out."""

DROPPED = ("network", "cooling", "site", "processor", "run", "runs", "dated", "signer", "nodes", "per accelerator",
           "energy", "95 % interval", "rules not met", "accelerator", "date", "replicas", "failures",
           "error", "regulated")  # fmt: skip
"""Columns that a narrow terminal leaves out, in this order: rank, system and score stay."""

LEFT = frozenset({"system", "run", "signer", "site", "network", "cooling", "processor", "accelerator", "rules not met"})

UNITS = {
    "score_ops": "OPS",
    "regulated_score_ops": "OPS",
    "peak_ops": "OPS",
    "sustained_ops": "OPS",
    "energy_to_quality_j": "J",
    "operations_total": "OP",
    "score per accelerator (OPS)": "OPS",
    "operations per second of training": "OPS",
    "operations per joule": "OP/J",
}
"""Units of measures of a comparison."""

REMARKS = {"unverified": " (a report.json has no records)", "invalid": " (it has no score)"}


def configure_rank(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument("results", nargs="+", type=Path, metavar="DIR|ARCHIVE|report.json", help="results to rank")
    parser.add_argument("--suite", choices=("automl", "science"), help="rank runs of this suite only")
    parser.add_argument(
        "--by",
        choices=[*ORDERS, *SCIENCE_ORDERS],
        help="what to sort by (default: score); scientific workloads by time (default), valid or valid-per-watt",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write the ranking as a page")
    parser.add_argument(
        "--signers",
        type=Path,
        metavar="FILE",
        help="verify signatures of archives with this file of allowed signers: runs of one system that one of them "
        "has signed are one row",
    )
    add_heads(parser)
    add_format(parser, ("table", "json", "csv"))


def add_heads(parser: argparse.ArgumentParser) -> None:
    """Add --heads."""
    parser.add_argument(
        "--heads",
        type=Path,
        metavar="FILE",
        help="heads as they arrived at the referee, each line with its time: do they date the run?",
    )


def execute_rank(arguments: argparse.Namespace, repeat: Repeat | None) -> int:
    """Rank the results and print the ranking; `repeat` does parts of official runs again."""
    if arguments.signers is not None:
        check_signers(arguments.signers)
    heads = read_arrivals(arguments.heads) if arguments.heads is not None else None
    found = [try_result(path, repeat, arguments.signers, heads) for path in arguments.results]
    order, models = _orders(arguments.by, arguments.suite)
    found = [item if isinstance(item, str) else _rankable(item, order) for item in found]
    problems = [item for item in found if isinstance(item, str)]
    results = [item for item in found if isinstance(item, RunResult)]
    searches = [item for item in results if not item.report.is_science] if arguments.suite != "science" else []
    trained = [item for item in results if item.report.is_science] if arguments.suite != "automl" else []
    ranking, workloads = rank(searches, order, problems), rank_workloads(trained, models)
    same, conflicts = look_at_workloads(trained)
    ranking = replace(ranking, same=(*ranking.same, *same), conflicts=(*ranking.conflicts, *conflicts))
    if arguments.html is not None:
        write_output(arguments.html, ranking_page(ranking, workloads, IN_ORDER[models]))
    if arguments.format == "json":
        document = {
            "order": ranking.order,
            "science_order": models,
            "rows": [asdict(row) for row in ranking.rows],
            "workloads": [asdict(row) for row in workloads],
            "problems": problems,
            "same": [{"origin": origin, "kept": kept} for origin, kept in ranking.same],
            "conflicts": list(ranking.conflicts),
        }
        say_json(json.dumps(document, indent=2))
    elif arguments.format == "csv":
        say_text(csv_text(ranking.frame() if ranking.rows or not workloads else workload_frame(workloads)))
    elif ranking.rows or workloads:
        print_workloads(workloads, models)
        _print_ranking(ranking)
    if not ranking.rows and not workloads:
        raise RunDirectoryError(*(problems or [f"none of these runs is of the suite {arguments.suite}"]))
    return EXIT_FAILED if problems else EXIT_DONE


def _orders(by: Order | ScienceOrder | None, suite: str | None) -> tuple[Order, ScienceOrder]:
    """The orders of both suites. Raises UsageError if the order is not of the suite."""
    order: Order = "score"
    models: ScienceOrder = "time"
    for name in ORDERS:
        if by == name and suite != "science":
            return name, models
    for other in SCIENCE_ORDERS:
        if by == other and suite != "automl":
            return order, other
    if by is not None:
        raise UsageError(
            f"--by {by} is not of --suite {suite}: {', '.join(ORDERS)} are of automl, "
            f"{', '.join(SCIENCE_ORDERS)} of science"
        )
    return order, models


def _rankable(result: RunResult, order: Order) -> RunResult | str:
    """A result, or why it cannot be ranked: a bare report.json may hold anything."""
    try:
        rank_workloads([result])
        for row in rank([result], order).rows:
            for text in COLUMNS.values():
                text(row)
    except Exception as error:  # one result must not hide the others
        return why_unread(result.origin, error)
    return result


def _print_ranking(ranking: Ranking) -> None:
    console = open_console()
    for status, heading, basis, rows, _, _ in parts_of(ranking):
        if not rows:
            if ranking.rows:
                print_line(console, f"no official run yet: {OFFICIAL}")
            continue
        columns = _columns(rows)
        title = f"{heading}, by {ranking.order}" if status == "official" else heading
        table = make_table(f"{title}: {basis}" if basis else title, *columns, left=LEFT, dropped=DROPPED)
        for cells in zip(*columns.values(), strict=True):
            table.add_row(*cells)
        console.print(table)
    for line in ranking.repeated:
        print_line(console, line)
    for conflict in ranking.conflicts:
        print_line(console, f"look at: {conflict}")
    for problem in ranking.problems:
        print_line(console, f"not read: {problem}")


def _columns(rows: Sequence[Row]) -> dict[str, list[str]]:
    """The texts of every column that has a value, by its heading."""
    found = {heading: [text(row) for row in rows] for heading, text in COLUMNS.items()}
    return {heading: texts for heading, texts in found.items() if set(texts) != {"-"}}


def _configure_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", type=Path, metavar="A", help="run directory, archive or report.json")
    parser.add_argument("second", type=Path, metavar="B", help="the same, to compare with A")
    parser.add_argument("more", nargs="*", type=Path, metavar="C", help="further runs, with --figure")
    add_figure(parser)
    add_format(parser)


def _compare(arguments: argparse.Namespace) -> int:
    if arguments.figure is not None:
        write_figures(arguments.figure, [arguments.first, arguments.second, *arguments.more])
    elif arguments.more:
        raise UsageError("compare: two results at a time; --figure FOLDER draws any number of runs together")
    comparison = compare(read_result(arguments.first), read_result(arguments.second))
    if arguments.format == "json":
        measures = [{**asdict(m), "ratio": m.ratio, "worse": m.worse} for m in comparison.measures]
        document = {
            "results": [{"origin": str(item.origin), "status": item.status} for item in _results(comparison)],
            "settings": [asdict(item) for item in comparison.settings],
            "measures": measures,
        }
        say_json(json.dumps(document, indent=2))
    else:
        _print_comparison(comparison)
    return EXIT_DONE


def _results(comparison: ReportComparison) -> tuple[RunResult, RunResult]:
    return comparison.first, comparison.second


def _print_comparison(comparison: ReportComparison) -> None:
    console = open_console()
    for label, result in zip("AB", _results(comparison), strict=True):
        end = "" if result.report.ended in ("deadline", "completed") else f"; it {ENDS[result.report.ended]}"
        print_line(console, f"{label}: {result.origin}: {result.status}{REMARKS.get(result.status, '')}{end}")
    table = make_table("Settings that differ", "setting", "A", "B")
    for difference in comparison.settings:
        table.add_row(difference.key, difference.first, difference.second)
    console.print(table if comparison.settings else "All settings are the same.")
    table = make_table("Results", "", "A", "B", "B / A")
    for measure in comparison.measures:
        shown = (_shown(measure.name, value) for value in (measure.first, measure.second))
        table.add_row(words_of(measure.name), *shown, number(measure.ratio, 3))
    console.print(table)
    worse = [f"{words_of(measure.name)} ({_change(measure)})" for measure in comparison.slower]
    more = [f"and {len(worse) - MOST_NAMED} more"] if len(worse) > MOST_NAMED else []
    print_line(console, f"worse in B: {', '.join([*worse[:MOST_NAMED], *more]) or 'nothing'}")


def _change(measure: Measure) -> str:
    if measure.ratio is not None:
        return f"{number(measure.ratio, 3)} x"
    return f"{_shown(measure.name, measure.first)} to {_shown(measure.name, measure.second)}"


def _shown(name: str, value: float | None) -> str:
    """A measure with its unit. Counts and shares have none."""
    if name == "duration_s" and value is not None:
        return format_duration(value)
    if name == "images trained per second of training" and value is not None:
        return f"{value:,.1f}"
    unit = UNITS.get(name.rpartition(": ")[2])
    if unit is None and isinstance(value, int):
        return f"{value:,}"
    return number(value) if unit is None else si(value, unit)


COMPARE = Command(
    description="Put two results side by side: settings that differ, scores, phases, and what got worse.",
    example="aiperf compare runs/before runs/after --figure figures",
    configure=_configure_compare,
    execute=_compare,
)
