"""The second half of `aiperf scale`: the runs of a series as a table, a figure and a page."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from urllib.parse import quote

from aiperf.cli.command import Command, add_format, write_output
from aiperf.cli.console import open_console
from aiperf.cli.lines import say_json, say_text, to_open, warn
from aiperf.cli.tables import make_table
from aiperf.cli.units import number, percent, si
from aiperf.errors import EXIT_DONE, EnvironmentNotReadyError, RunDirectoryError
from analysis.output.figures.style import Drawing
from analysis.output.frames import csv_text
from analysis.output.page import vocabulary as words
from analysis.output.pages import render
from analysis.output.pictures import save_drawing
from analysis.results.scaling import (
    ScalingRow,
    differences_in_words,
    measure_of,
    scaling_chart,
    scaling_frame,
    scaling_rows,
)
from analysis.results.source import read_result
from analysis.verbs.ranking_page import date_of

PAGE = "scaling.html"


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="DIR", help="run directories or archives")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="also write the page, the figure, JSON and CSV")
    add_format(parser, ("table", "json", "csv"))


def _execute(arguments: argparse.Namespace) -> int:
    rows = scaling_rows([read_result(path) for path in arguments.runs])
    if all(row.efficiency is None for row in rows):
        raise RunDirectoryError("none of these runs has a score: there is nothing to scale")
    if arguments.output is not None:
        _write(arguments.output, rows)
    _print(rows, arguments.format)
    if arguments.output is not None:
        warn(f"next: {to_open(arguments.output / PAGE)}")
    if differences := differences_in_words(rows):
        warn("aiperf: WARNING: these runs differ in more than their size:", *differences)
    return EXIT_DONE


def _write(folder: Path, rows: Sequence[ScalingRow]) -> None:
    drawing = scaling_chart(rows)
    write_output(folder / PAGE, scaling_page(rows, drawing, _reports(folder, rows)))
    write_output(folder / "scaling.json", json.dumps([asdict(row) for row in rows], indent=2) + "\n")
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


def scaling_page(rows: Sequence[ScalingRow], drawing: Drawing, links: Mapping[str, str]) -> str:
    """The page of a series as one file. `links`: the pages of its runs."""
    return render(
        "scaling.html", drawing=drawing, rows=rows, differences=differences_in_words(rows), links=links,
        measure=measure_of(rows), date_of=date_of, words=words,
    )  # fmt: skip


def _print(rows: Sequence[ScalingRow], form: str) -> None:
    if form == "json":
        say_json(json.dumps([asdict(row) for row in rows], indent=2))
        return
    if form == "csv":
        say_text(csv_text(scaling_frame(rows)))
        return
    table = make_table(
        "Weak scaling", "replicas", "accelerators", "ranks", "score", "ideal", "efficiency", "error", "status", "run"
    )
    for row in rows:
        mark = " *" if row.differing_settings else ""
        table.add_row(
            str(row.replicas), str(row.accelerators), number(row.ranks, 0), si(row.score_ops, "OPS"),
            si(row.ideal_ops, "OPS"), percent(row.efficiency) + mark, number(row.error), row.status, row.origin,
        )  # fmt: skip
    if any(row.differing_settings for row in rows):
        table.caption = "* other settings than those of the smallest run"
    open_console().print(table)


REPORT_SCALING = Command(
    description="Score and efficiency of finished runs against accelerators or ranks. The second half of aiperf scale.",
    example="aiperf scale --from runs/one runs/two --output runs/scaling",
    configure=_configure,
    execute=_execute,
)
