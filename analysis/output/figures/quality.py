"""Figures of scientific workloads: quality against time, and against operations."""

from collections.abc import Iterator
from typing import Any

from aiperf.cli.units import scale_of
from analysis.output.figures.style import COLOURS, Drawing, draw, time_unit
from analysis.report.model import Report
from analysis.report.workloads import WorkloadPart

MOST_MODELS = 100
"""Models that are drawn; the CSV files have all."""

NAMED = 8
"""Number of models above which the legend is left out."""

Curve = tuple[int, list[float], list[float], list[int]]
"""Number of a model, its places, its qualities, and its epochs."""


def curves_of(part: WorkloadPart, against: str) -> tuple[str, list[Curve]] | None:
    """The axis and the curves of a workload's models; None without a measured epoch."""
    points = [point for model in part.models for point in model.curve if point.quality is not None]
    if not points:
        return None
    if against == "time":
        size, unit = time_unit(max(point.t_s for point in points))
        label = f"{unit} since the first job of the model"
    else:
        prefix, size = scale_of(max(point.operations for point in points))
        label = f"operations ({prefix}OP)"
    curves: list[Curve] = []
    for model in part.models[:MOST_MODELS]:
        own = [point for point in model.curve if point.quality is not None]
        places = [(point.t_s if against == "time" else point.operations) / size for point in own]
        if own:
            qualities = [float(f"{point.quality:.6g}") for point in own]
            curves.append((model.instance, [float(f"{at:.6g}") for at in places], qualities, [p.epoch for p in own]))
    return label, curves


def caption_of(part: WorkloadPart, against: str) -> str:
    """The caption of a chart."""
    some = f" The first {MOST_MODELS} of {len(part.models)} models." if len(part.models) > MOST_MODELS else ""
    return f"Validation quality of {part.workload} against {against}, a mark for each epoch. Dotted: the target.{some}"


def quality_drawings(report: Report) -> Iterator[Drawing]:
    """One figure for each workload with a measured epoch: against time, and against operations."""
    for part in report.workloads:
        found = [curves for against in ("time", "operations") if (curves := curves_of(part, against)) is not None]
        if found:
            yield _drawing(part, found)


def _drawing(part: WorkloadPart, found: list[tuple[str, list[Curve]]]) -> Drawing:
    def paint(figure: Any) -> None:
        for axes, (label, curves) in zip(figure.subplots(1, 2, sharey=True), found, strict=True):
            for model, places, qualities, _ in curves:
                axes.plot(places, qualities, marker=".", label=f"model {model}")
            if part.target is not None:
                axes.axhline(part.target, color=COLOURS[2], linestyle=":")
            axes.set(xlabel=label, xlim=(0, None))
        figure.axes[0].set(ylabel=(part.measure or "quality").replace("_", " "))
        if len(found[0][1]) <= NAMED:
            figure.axes[0].legend(loc="best")

    return draw(f"quality-{part.workload}", caption_of(part, "time and operations"), paint)
