"""The roofline of a run's nodes (Williams et al. 2009): ceilings, operators, trials."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiperf.cli.units import scale_of
from analysis.output.figures.style import COLOURS, INK, Drawing, draw
from analysis.report.model import Report
from analysis.report.roofline.parts import CeilingPart

MOST_CEILINGS = 3
MOST_POINTS = 1000

GROUPS = {"conv": "conv", "maxpool": "pool", "averagepool": "pool", "fc": "fc"}
TRIALS = "trials"
SERIES = {"conv": COLOURS[0], "pool": COLOURS[2], "fc": COLOURS[3], TRIALS: COLOURS[1]}
"""Marked series, each with its colour."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A point: operations a byte, operations per second, and its name."""

    intensity: float
    ops: float
    name: str


@dataclass(frozen=True, slots=True)
class Roofline:
    """Content of the figure."""

    ceilings: tuple[CeilingPart, ...]
    marks: dict[str, list[Mark]]
    """Marks by series, without empty ones."""

    @property
    def span(self) -> tuple[float, float]:
        """The least and the largest intensity of the figure: of all marks and ridges."""
        every = [mark.intensity for own in self.marks.values() for mark in own]
        every += [part.gemm_ops / part.triad_bytes_per_s for part in self.ceilings]
        return min(every) / 2, max(every) * 2

    @property
    def top(self) -> float:
        """The largest rate of the figure."""
        return max(
            [*(part.gemm_ops for part in self.ceilings), *(mark.ops for own in self.marks.values() for mark in own)]
        )

    def roof(self, part: CeilingPart) -> tuple[list[float], list[float]]:
        """The corners of a ceiling: intensities and operations per second."""
        low, high = self.span
        ridge = part.gemm_ops / part.triad_bytes_per_s
        return [low, ridge, high], [low * part.triad_bytes_per_s, part.gemm_ops, part.gemm_ops]


def roofline_of(report: Report) -> Roofline | None:
    """Ceilings and marks of the kind of node that trained, or of the first; None without any."""
    part = report.roofline
    if part is None or not part.ceilings:
        return None
    trained = {(trial.device, trial.precision) for trial in part.trials}
    own = [item for item in part.ceilings if (item.device, item.precision) in trained] or [*part.ceilings[:1]]
    shown = {(item.device, item.precision) for item in own[:MOST_CEILINGS]}
    marks: dict[str, list[Mark]] = {name: [] for name in SERIES}
    for row in part.operators:
        if row.operator in GROUPS and (row.device, row.precision) in shown:
            name = f"{row.operator} {row.shape}, {row.direction}, batch {row.batch} ({row.stack})"
            marks[GROUPS[row.operator]].append(Mark(row.ops_per_s / row.bytes_per_s, row.ops_per_s, name))
    for trial in part.trials[:MOST_POINTS]:
        if (trial.device, trial.precision) in shown and trial.ops > 0:
            marks[TRIALS].append(Mark(trial.intensity, trial.ops, f"trial {trial.trial}"))
    return Roofline(tuple(own[:MOST_CEILINGS]), {name: found for name, found in marks.items() if found})


CAPTION = (
    "Roofline of the micro suite: operations per second against operations a byte. Lines are the ceilings triad "
    "(memory) and gemm (computing); operators of the suite and trials are marked."
)


def roofline_chart(report: Report) -> Drawing | None:
    """The roofline as a drawing, both axes logarithmic; None if nothing was measured."""
    found = roofline_of(report)
    return None if found is None else draw("roofline", CAPTION, lambda figure: _paint(figure, found))


def _paint(figure: Any, found: Roofline) -> None:
    axes = figure.subplots()
    prefix, size = scale_of(found.top)
    for part in found.ceilings:
        xs, ys = found.roof(part)
        axes.plot(xs, _scaled(ys, size), color=INK, linewidth=1.2, label="ceiling")
    for name, marks in found.marks.items():
        axes.plot(
            [mark.intensity for mark in marks],
            _scaled([mark.ops for mark in marks], size),
            "o",
            color=SERIES[name],
            markersize=4,
            alpha=0.8,
            label=name,
        )
    axes.set(xscale="log", yscale="log", xlabel="operations a byte", ylabel=f"{prefix}OPS")
    axes.legend(loc="lower right", fontsize=8)


def _scaled(values: Sequence[float], size: float) -> list[float]:
    return [value / size for value in values]
