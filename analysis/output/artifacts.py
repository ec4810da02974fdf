"""The files of `aiperf report`: JSON, tables, formats of other tools, and what it draws."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pandas as pd

from aiperf.errors import EnvironmentNotReadyError
from aiperf.files import write_atomically
from analysis.output.frames import csv_text, epoch_table, tables_of
from analysis.output.mllog import mllog_lines, result_logs
from analysis.output.openmetrics import openmetrics_text
from analysis.reading.run_data import RunData
from analysis.reading.workers import MANY_TRIALS, do_both
from analysis.report.model import Report


def write_report(folder: Path, data: RunData, report: Report) -> Path:
    """Write all files of a report to a folder; return the page. Raises EnvironmentNotReadyError.

    report.json is written first, so that the numbers are there even if a later file fails. Half of
    the work for a large run is done by a copy of this process at the same time: the figures, and
    the table of epochs.
    """
    with _named(folder):
        _write_json(folder, report)
        here, there = (partial(do, folder, data, report) for do in (_write_texts_and_page, _write_epochs_and_figures))
        do_both(here, there, several=len(report.trials) > MANY_TRIALS)
    return _page(folder)


def write_numbers(folder: Path, data: RunData, report: Report) -> None:
    """Write a report without page and figures. Raises EnvironmentNotReadyError.

    In the run directory those of an earlier report go, which show other numbers; in a folder that
    somebody chose all files may be theirs, and stay.
    """
    with _named(folder):
        _write_json(folder, report)
        if folder == data.paths.report:
            for suffix in ("svg", "png"):
                for figure in _figures(folder).glob(f"*.{suffix}"):
                    figure.unlink()
            _page(folder).unlink(missing_ok=True)
        _write_table(folder, "epochs", epoch_table(data))
        _write_texts(folder, data, report)


def _page(folder: Path) -> Path:
    return folder / "report.html"


def _figures(folder: Path) -> Path:
    return folder / "figures"


@contextmanager
def _named(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EnvironmentNotReadyError(
            [f"{folder} cannot be written: {error}; choose another with --output"]
        ) from error


def _write_json(folder: Path, report: Report) -> None:
    # As bytes at once: that of a damaged run may have a hundred megabytes.
    document = b"%b\n" % report.__pydantic_serializer__.to_json(report, indent=2)
    write_atomically(folder / "report.json", document)


def _write_table(folder: Path, name: str, table: pd.DataFrame) -> None:
    write_atomically(folder / "tables" / f"{name}.csv", csv_text(table).encode())


def _write_texts(folder: Path, data: RunData, report: Report) -> None:
    """All tables but that of epochs, and the logs for other programs."""
    for name, table in tables_of(report).items():
        _write_table(folder, name, table)
    if lines := [*mllog_lines(data, report)]:
        write_atomically(folder / "mllog.txt", _text(lines))
    for name, log in result_logs(data, report):
        write_atomically(folder / "mllog" / name, _text(log))
    write_atomically(folder / "metrics.txt", openmetrics_text(report).encode())


def _write_texts_and_page(folder: Path, data: RunData, report: Report) -> None:
    # What draws takes half a second to import: a report without page need not wait for it.
    from analysis.output.page.view import report_page  # noqa: PLC0415

    _write_texts(folder, data, report)
    write_atomically(_page(folder), report_page(data, report).encode())


def _write_epochs_and_figures(folder: Path, data: RunData, report: Report) -> None:
    from analysis.output.pictures import write_figures  # noqa: PLC0415

    _write_table(folder, "epochs", epoch_table(data))
    write_figures(_figures(folder), data, report)


def _text(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
