"""Results from run directories, submission archives, or bare report.json files."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from aiperf.errors import AiperfError, RunDirectoryError
from aiperf.rules.table import RULES_VERSION
from aiperf.run_directory.paths import open_run
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.model import Report
from analysis.results.archive import is_archive, open_archive


@dataclass(frozen=True)
class RunResult:
    """A report. `recomputed`: its numbers were computed from raw records just now."""

    origin: Path
    report: Report
    recomputed: bool


def read_result(path: Path) -> RunResult:
    """Read the result at a path. Raises RunDirectoryError if there is none, with the reason."""
    if path.is_file() and not is_archive(path):
        return RunResult(path, read_report_file(path), recomputed=False)
    with opened_run(path) as folder:
        return RunResult(path, build_report(read_run(open_run(folder))), recomputed=True)


@contextmanager
def opened_run(path: Path) -> Iterator[Path]:
    """The run directory at a path; an archive is checked and unpacked into a temporary folder."""
    if not is_archive(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="aiperf-") as folder:
        yield open_archive(path, Path(folder))


def read_report_file(path: Path) -> Report:
    """Read a report.json. Raises RunDirectoryError if it is damaged, foreign, or of other rules."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise RunDirectoryError(f"{path} is not a run directory, archive or report.json: {error}") from None
    if not isinstance(document, dict) or "rules_version" not in document:
        raise RunDirectoryError(f"{path} is JSON, but not a report of aiperf: it has no rules_version")
    if document["rules_version"] != RULES_VERSION:
        raise RunDirectoryError(f"{path}: its rules are {document['rules_version']!r}, not {RULES_VERSION!r}")
    try:
        return Report.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise RunDirectoryError(f"{path} is not a report of this version: {where}: {first['msg']}") from None


def try_result(path: Path) -> RunResult | str:
    """The result at a path, or why there is none: one bad path must not hide the others."""
    try:
        return read_result(path)
    except (AiperfError, OSError) as error:
        return str(error) if isinstance(error, AiperfError) else f"{path}: {error}"
