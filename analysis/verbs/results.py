"""The verbs for several results: `aiperf rank`, `aiperf compare` and `aiperf scale`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from aiperf.cli.command import Command, add_format
from aiperf.cli.units import number, percent, si
from aiperf.config.options import add_run_options, read_run_options, words_of
from aiperf.errors import EXIT_DONE, EXIT_FAILED, EnvironmentNotReadyError, RunDirectoryError, UsageError
from aiperf.files import write_atomically
from analysis.output.artifacts import save_drawing
from analysis.output.pages import render
from analysis.output.tables import open_console
from analysis.results.comparison import Comparison, compare
from analysis.results.ranking import ORDERS, VERDICT_ORDER, Ranking, rank
from analysis.results.scaling import ScalingRow, scaling_chart, scaling_frame, scaling_rows
from analysis.results.source import Result, read_result, try_result
from analysis.series import run_series

HEADINGS = ("rank", "system", "replicas", "accelerators", "score", "regulated", "error", "per accelerator",
            "per joule", "numbers", "rules not met")  # fmt: skip


def _configure_rank(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", nargs="+", type=Path, metavar="DIR|ARCHIVE|report.json", help="results to rank")
    parser.add_argument("--by", choices=list(ORDERS), default="score", help="what to sort by (default: %(default)s)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write the ranking as a page")
    add_format(parser, ("table", "json", "csv"))


def _rank(arguments: argparse.Namespace) -> int:
    found = [try_result(path) for path in arguments.results]
    problems = [item for item in found if isinstance(item, str)]
    ranking = rank((item for item in found if isinstance(item, Result)), arguments.by, problems)
    if arguments.html is not None:
        _write(arguments.html, render("ranking.html", ranking=ranking))
    if arguments.format == "json":
        _print(json.dumps({"order": ranking.order, "rows": [asdict(row) for row in ranking.rows],
                           "problems": problems}, indent=2))  # fmt: skip
    elif arguments.format == "csv":
        _print(ranking.frame().to_csv(index=False).rstrip())
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
        table = _table(f"{status.capitalize()}, by {ranking.order}", *HEADINGS)
        for row in rows:
            table.add_row(
                str(row.rank or "-"), row.system, str(row.replicas), str(row.accelerators), si(row.score_ops, "OPS"),
                si(row.regulated_score_ops, "OPS"), number(row.error), si(row.ops_per_accelerator, "OPS"),
                si(row.operations_per_joule), row.source, row.reasons,
            )  # fmt: skip
        console.print(table)
    for problem in ranking.problems:
        console.print(f"not read: {problem}", markup=False, highlight=False, soft_wrap=True)


def _configure_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", type=Path, metavar="A", help="run directory, archive or report.json")
    parser.add_argument("second", type=Path, metavar="B", help="what to compare with it")
    add_format(parser)


def _compare(arguments: argparse.Namespace) -> int:
    comparison = compare(read_result(arguments.first).report, read_result(arguments.second).report)
    if arguments.format == "json":
        measures = [{**asdict(m), "ratio": m.ratio, "worse": m.worse} for m in comparison.measures]
        _print(json.dumps({"settings": [asdict(s) for s in comparison.settings], "measures": measures}, indent=2))
    else:
        _print_comparison(comparison)
    return EXIT_DONE


def _print_comparison(comparison: Comparison) -> None:
    console = open_console()
    table = _table("Settings that differ", "setting", "A", "B")
    for difference in comparison.settings:
        table.add_row(difference.key, difference.first, difference.second)
    console.print(table if comparison.settings else "All settings are the same.")
    table = _table("Results", "", "A", "B", "B / A")
    for measure in comparison.measures:
        table.add_row(measure.name, si(measure.first), si(measure.second), number(measure.ratio, 3))
    console.print(table)
    worse = ", ".join(f"{m.name} ({number(m.ratio, 3)} x)" for m in comparison.slower)
    console.print(f"worse in B: {worse or 'nothing'}", markup=False, highlight=False, soft_wrap=True)


def _configure_scale(parser: argparse.ArgumentParser) -> None:
    add_run_options(parser)
    parser.add_argument(
        "--counts", default="1,2,4", metavar="N,N,...", help="numbers of replicas (default: %(default)s)"
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="where the runs and the figure go")
    parser.add_argument("--from", nargs="+", type=Path, metavar="DIR", dest="finished",
                        help="start nothing: draw these finished runs")  # fmt: skip
    add_format(parser, ("table", "json", "csv"))


def _scale(arguments: argparse.Namespace) -> int:
    results = list(map(read_result, arguments.finished)) if arguments.finished else _run_series(arguments)
    rows = scaling_rows(results)
    if not rows:
        raise RunDirectoryError("none of these runs has done any work: there is nothing to scale")
    if arguments.output is not None:
        _write_scaling(arguments.output, rows)
    _print_scaling(rows, arguments.format)
    return EXIT_DONE


def _run_series(arguments: argparse.Namespace) -> list[Result]:
    if arguments.output is None:
        raise UsageError("name the directory of the series: --output DIR (or finished runs: --from DIR ...)")
    if arguments.replicas is not None:
        raise UsageError("--counts tells the numbers of replicas; --replicas has no place here")
    counts = _counts(arguments.counts)
    read_run_options(arguments)
    launcher = ["--launcher", arguments.launcher] if arguments.launcher else []
    return run_series(arguments.output, counts, [*words_of(arguments), *launcher])


def _counts(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UsageError(f"--counts {text}: whole numbers above 0 with commas between them, such as 1,2,4")
    return sorted({int(word) for word in words})


def _write_scaling(folder: Path, rows: Sequence[ScalingRow]) -> None:
    drawing = scaling_chart(rows)
    _write(folder / "scaling.html", render("scaling.html", drawing=drawing, rows=rows))
    _write(folder / "scaling.json", json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    _write(folder / "scaling.csv", scaling_frame(rows).to_csv(index=False))
    save_drawing(folder, drawing)


def _print_scaling(rows: Sequence[ScalingRow], form: str) -> None:
    if form == "json":
        _print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    if form == "csv":
        _print(scaling_frame(rows).to_csv(index=False).rstrip())
        return
    table = _table("Weak scaling", "replicas", "accelerators", "score", "ideal", "efficiency", "error", "status", "run")
    for row in rows:
        table.add_row(
            str(row.replicas), str(row.accelerators), si(row.score_ops, "OPS"), si(row.ideal_ops, "OPS"),
            percent(row.efficiency), number(row.error), row.status, row.origin,
        )  # fmt: skip
    open_console().print(table)


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading)
    return table


def _write(file: Path, text: str) -> None:
    try:
        write_atomically(file, text.encode())
    except OSError as error:
        raise EnvironmentNotReadyError([f"{file} cannot be written: {error}"]) from error


def _print(text: str | Any) -> None:
    print(text)  # noqa: T201


RANK = Command(
    description="Rank results. Run directories and archives are recomputed; a bare report.json is taken as it is.",
    example="aiperf rank runs/* --by regulated --html ranking.html",
    configure=_configure_rank,
    execute=_rank,
)

COMPARE = Command(
    description="Two results side by side: settings that differ, scores, phases, and what got slower.",
    example="aiperf compare runs/before runs/after",
    configure=_configure_compare,
    execute=_compare,
)

SCALE = Command(
    description="Weak scaling: one configuration with more and more replicas, one run after another; resumable.",
    example="aiperf scale --dataset digits --duration 5m --counts 1,2 --output runs/scaling",
    configure=_configure_scale,
    execute=_scale,
)
