"""Runs as the figures of Ren et al. 2021 have them: courses of score and use, one line for each."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from aiperf.errors import RunDirectoryError
from aiperf.run_directory.paths import open_run
from analysis.output.figures.curves import POINTS
from analysis.output.figures.paper import Floats, Line, Use
from analysis.output.page.machine import hardware_of
from analysis.reading.run_data import RunData
from analysis.report.build import build_report
from analysis.report.model import Report
from analysis.results.source import opened_run, read_result_data
from analysis.results.submission_package import is_archive


def read_lines(paths: Sequence[Path]) -> list[Line]:
    """The lines of runs: directories or archives. Raises RunDirectoryError if one has no course."""
    return [_read_line(path) for path in paths]


def _read_line(path: Path) -> Line:
    if path.is_file() and not is_archive(path):
        raise RunDirectoryError(f"{path}: figures are drawn of records; name a run directory or an archive")
    with opened_run(path) as folder:
        data, state = read_result_data(open_run(folder), unpacked=folder != path)
    if data.start_ms is None or data.duration_ms <= 0:
        raise RunDirectoryError(f"{path}: the run never started: it has no course")
    return line_of(data, build_report(data, state))


def line_of(data: RunData, report: Report) -> Line:
    """A run that started as a line. An invalid one has no place in the figure of sizes."""
    assert data.start_ms is not None
    points = data.course.timeline(data.start_ms, data.end_ms, max(1, data.duration_ms // POINTS))
    interval_s = data.manifest.config.telemetry.interval or 30.0
    bins = max(1, min(POINTS, round(data.duration_ms / 1000 / interval_s)))
    edges = np.linspace(data.start_ms, data.end_ms, bins + 1)
    valid = report.verdict not in ("invalid", "running")
    known = report.statistics.score_ops if report.statistics is not None and valid else None
    hardware = hardware_of(report)
    return Line(
        system=hardware.accelerator or hardware.processor or report.name,
        devices=report.accelerators or report.ranks or report.present,
        measure="accelerators" if report.accelerators else "ranks",
        duration_s=data.duration_ms / 1000,
        times_s=np.array([point.t_ms / 1000 for point in points]),
        ops=np.array([point.ops for point in points]),
        regulated_ops=None if data.is_science else np.array([point.regulated_ops for point in points]),
        edges_s=(edges - edges[0]) / 1000,
        use=_use(data, "accelerator_percent", edges),
        memory=_use(data, "accelerator_memory_percent", edges),
        score_ops=report.score_ops if valid else None,
        score_low=known.low if known is not None else None,
        score_high=known.high if known is not None else None,
    )


def _use(data: RunData, name: str, edges: Floats) -> Use | None:
    assert data.start_ms is not None
    means = [node.mean(name, data.start_ms, data.end_ms) for node in data.telemetry.nodes]
    averages = [mean for mean in means if mean is not None]
    if not averages:
        return None
    table = data.telemetry.by_node(name, np.asarray(edges, np.float64))
    there = ~np.isnan(table).all(axis=0)

    def over_nodes(of: Callable[..., Floats]) -> Floats:
        values = np.full(table.shape[1], np.nan)
        values[there] = of(table[:, there], axis=0)
        return values

    return Use(over_nodes(np.nanmean), over_nodes(np.nanmin), over_nodes(np.nanmax), sum(averages) / len(averages))
