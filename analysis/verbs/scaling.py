"""The second half of `aiperf scale`: the runs of a series as a table, a figure and a page."""

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import get_args
from urllib.parse import quote

from aiperf.cli.command import Command, add_format, write_output
from aiperf.cli.console import open_console
from aiperf.cli.lines import say_json, say_text, to_open, warn
from aiperf.cli.tables import make_table
from aiperf.cli.units import interval, number, percent, si
from aiperf.config.duration import format_duration
from aiperf.errors import EXIT_DONE, EnvironmentNotReadyError, RunDirectoryError
from analysis.output.figures.style import Drawing
from analysis.output.frames import csv_text
from analysis.output.page import vocabulary as words
from analysis.output.pages import render
from analysis.output.pictures import save_drawing
from analysis.results.scaling.chart import scaling_chart
from analysis.results.scaling.laws import Fit, Mode
from analysis.results.scaling.rows import (
    ScalingRow,
    differences_in_words,
    fits_of,
    limit_in_words,
    measure_of,
    scaling_document,
    scaling_frame,
    scaling_rows,
)
from analysis.results.source import read_result
from analysis.verbs.figures import add_figure, write_figures
from analysis.verbs.ranking_page import date_of

PAGE = "scaling.html"


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="DIR", help="run directories or archives")
    parser.add_argument(
        "--mode", choices=get_args(Mode), default="weak", help="whether the work grows with the machine"
    )
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="also write the page, the figure, JSON and CSV")
    add_figure(parser)
    add_format(parser, ("table", "json", "csv"))


def _execute(arguments: argparse.Namespace) -> int:
    rows = scaling_rows([read_result(path) for path in arguments.runs], arguments.mode)
    if all(row.efficiency is None for row in rows):
        raise RunDirectoryError("none of these runs has a score: there is nothing to scale")
    if arguments.output is not None:
        _write(arguments.output, rows, arguments.mode)
    if arguments.figure is not None:
        write_figures(arguments.figure, arguments.runs)
    _print(rows, arguments.mode, arguments.format)
    if arguments.output is not None:
        warn(f"next: {to_open(arguments.output / PAGE)}")
    if differences := differences_in_words(rows):
        warn("aiperf: WARNING: these runs differ in more than their size:", *differences)
    return EXIT_DONE


def _write(folder: Path, rows: Sequence[ScalingRow], mode: Mode) -> None:
    drawing = scaling_chart(rows, mode)
    write_output(folder / PAGE, scaling_page(rows, drawing, _reports(folder, rows), mode))
    write_output(folder / "scaling.json", json.dumps(scaling_document(rows, mode), indent=2) + "\n")
    write_output(folder / "scaling.csv", csv_text(scaling_frame(rows)))
    try:
        save_drawing(folder, drawing)
    except OSError as error:
        raise EnvironmentNotReadyError([f"{folder} cannot be written: {error}"]) from error


def _reports(folder: Path, rows: Sequence[ScalingRow]) -> dict[str, str]:
    """The addresses of the runs' own pages from a folder, by the paths of the runs."""
    pages = {row.origin: Path(row.origin) / "report" / "report.html" for row in rows}
    return {
        origin: quote(os.path.relpath(page.absolute(), folder.absolute()))
        for origin, page in pages.items()
        if page.is_file()
    }


def scaling_page(rows: Sequence[ScalingRow], drawing: Drawing, links: Mapping[str, str], mode: Mode = "weak") -> str:
    """The page of a series as one file. `links`: the pages of its runs."""
    return render(
        "scaling.html",
        drawing=drawing,
        rows=rows,
        differences=differences_in_words(rows),
        links=links,
        measure=measure_of(rows),
        date_of=date_of,
        words=words,
        mode=mode,
        fits=fits_of(rows, mode),
        limit=limit_in_words(rows, mode),
        columns=_columns(rows),
    )


COLUMNS: dict[str, Callable[[ScalingRow], str]] = {
    "nodes": lambda row: number(row.nodes, 0),
    "batch a rank": lambda row: number(row.batch_per_rank, 0),
    "batch": lambda row: number(row.batch, 0),
    "models a minute": lambda row: number(row.models_per_minute, 3),
    "time to quality": lambda row: "-" if row.time_to_quality_s is None else format_duration(row.time_to_quality_s),
    "its efficiency": lambda row: percent(row.time_efficiency),
    "waits for images": lambda row: percent(row.input_share),
    "exchanges": lambda row: percent(row.exchange_share),
    "error": lambda row: number(row.error),
}
"""Columns of work and resources; those without any value are left out."""

DROPPED = ("nodes", "batch a rank", "batch", "exchanges", "waits for images", "error", "ideal", "run", "status")
"""Columns that a narrow terminal leaves out, in this order."""


def _columns(rows: Sequence[ScalingRow]) -> dict[str, list[str]]:
    found = {heading: [text(row) for row in rows] for heading, text in COLUMNS.items()}
    return {heading: texts for heading, texts in found.items() if set(texts) != {"-"}}


def _print(rows: Sequence[ScalingRow], mode: Mode, form: str) -> None:
    if form == "json":
        say_json(json.dumps(scaling_document(rows, mode), indent=2))
        return
    if form == "csv":
        say_text(csv_text(scaling_frame(rows)))
        return
    further = _columns(rows)
    table = make_table(
        f"{mode.capitalize()} scaling",
        "replicas",
        "accelerators",
        "ranks",
        "score",
        "ideal",
        "efficiency",
        *further,
        "status",
        "run",
        dropped=DROPPED,
    )
    for place, row in enumerate(rows):
        mark = " *" if row.differing_settings else ""
        table.add_row(
            str(row.replicas),
            str(row.accelerators),
            number(row.ranks, 0),
            si(row.score_ops, "OPS"),
            si(row.ideal_ops, "OPS"),
            percent(row.efficiency) + mark,
            *(texts[place] for texts in further.values()),
            row.status,
            row.origin,
        )
    if any(row.differing_settings for row in rows):
        table.caption = "* other settings than those of the smallest run"
    open_console().print(table)
    _print_fits(fits_of(rows, mode), measure_of(rows))
    if limit := limit_in_words(rows, mode):
        warn(f"aiperf: WARNING: {limit}")


def _print_fits(fits: Sequence[Fit], measure: str) -> None:
    if not fits:
        return
    table = make_table(
        "Laws of scaling, fitted",
        "law",
        "parameter",
        "value",
        "95 % interval",
        "scatter",
        f"next {measure}",
        "expected score",
        "95 % of it",
        left=("law", "parameter"),
    )
    for fit in fits:
        shares = "-" if fit.low is None or fit.high is None else f"{percent(fit.low)} to {percent(fit.high)}"
        table.add_row(
            fit.law,
            fit.parameter,
            percent(fit.value),
            shares,
            percent(fit.scatter),
            str(fit.next_size),
            si(fit.predicted, "OPS"),
            interval(fit.predicted_low, fit.predicted_high, "OPS"),
        )
    open_console().print(table)


REPORT_SCALING = Command(
    description="Score and efficiency of finished runs against accelerators or ranks. The second half of aiperf scale.",
    example="aiperf scale --from runs/one runs/two --output runs/scaling",
    configure=_configure,
    execute=_execute,
)
