"""The files of `aiperf report`: JSON, HTML, figures, tables, and formats of other tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from aiperf.errors import EnvironmentNotReadyError
from aiperf.files import write_atomically
from analysis.output.figures import curves, search
from analysis.output.figures.hybrid import hybrid_chart
from analysis.output.figures.quality import quality_drawings
from analysis.output.figures.roofline import roofline_chart
from analysis.output.figures.style import Drawing
from analysis.output.frames import csv_tables, csv_text
from analysis.output.mllog import mllog_lines, result_logs
from analysis.output.openmetrics import openmetrics_text
from analysis.output.page.view import report_page
from analysis.reading.run_data import RunData
from analysis.reading.workers import do_together
from analysis.report.model import Report

MANY_TRIALS = 1000
"""Of a run: from here on, copying the process for its files pays off."""


def drawings(data: RunData, report: Report) -> Iterator[Drawing]:
    """The figures of a run that it has data for."""
    if data.start_ms is None or data.duration_ms == 0:
        return
    every = (
        curves.phase_chart(data),
        curves.score_curve(data),
        curves.accuracy_curve(data) if not report.is_science else None,
        curves.utilisation(data),
        search.architecture_chart(report),
        search.family_tree(report),
        search.tuner_chart(report),
        roofline_chart(report),
        hybrid_chart(report),
    )
    yield from (drawing for drawing in every if drawing is not None)
    yield from quality_drawings(report)


def write_report(folder: Path, data: RunData, report: Report) -> Path:
    """Write all files of a report to a folder; return the page. Raises EnvironmentNotReadyError.

    report.json is written first, so that the numbers are there even if a later file fails. The
    figures of a large run are drawn by a copy of this process at the same time.
    """
    page = folder / "report.html"
    try:
        write_atomically(folder / "report.json", _json(report))
        works = [partial(write, folder, data, report) for write in (_write_tables_and_page, _write_figures)]
        do_together(works, several=len(report.trials) > MANY_TRIALS)
    except OSError as error:
        raise EnvironmentNotReadyError(
            [f"{folder} cannot be written: {error}; choose another with --output"]
        ) from error
    return page


def _write_tables(folder: Path, data: RunData, report: Report) -> None:
    for name, table in csv_tables(data, report).items():
        write_atomically(folder / "tables" / f"{name}.csv", csv_text(table).encode())
    if lines := [*mllog_lines(data, report)]:
        write_atomically(folder / "mllog.txt", _text(lines))
    for name, log in result_logs(data, report):
        write_atomically(folder / "mllog" / name, _text(log))
    write_atomically(folder / "metrics.txt", openmetrics_text(report).encode())


def _write_tables_and_page(folder: Path, data: RunData, report: Report) -> None:
    _write_tables(folder, data, report)
    _write_page(folder, data, report)


def _write_figures(folder: Path, data: RunData, report: Report) -> None:
    for drawing in drawings(data, report):
        save_drawing(folder / "figures", drawing)


def _write_page(folder: Path, data: RunData, report: Report) -> None:
    write_atomically(folder / "report.html", report_page(data, report).encode())


def _text(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _json(report: Report) -> bytes:
    """The report as JSON, as bytes at once: that of a damaged run may have a hundred megabytes."""
    return b"%b\n" % report.__pydantic_serializer__.to_json(report, indent=2)


def save_drawing(folder: Path, drawing: Drawing) -> None:
    """Write a figure as SVG and PNG. Raises OSError."""
    write_atomically(folder / f"{drawing.name}.svg", drawing.svg.encode())
    write_atomically(folder / f"{drawing.name}.png", drawing.png)
