"""The figures of a run, as SVG and PNG."""

from collections.abc import Iterator
from pathlib import Path

from aiperf.files import write_atomically
from analysis.output.figures import curves, search
from analysis.output.figures.hybrid import hybrid_chart
from analysis.output.figures.quality import quality_drawings
from analysis.output.figures.roofline import roofline_chart
from analysis.output.figures.style import Drawing
from analysis.reading.run_data import RunData
from analysis.report.model import Report


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


def write_figures(folder: Path, data: RunData, report: Report) -> None:
    """Write the figures of a run to a folder. Raises OSError."""
    for drawing in drawings(data, report):
        save_drawing(folder, drawing)


def save_drawing(folder: Path, drawing: Drawing) -> None:
    """Write a figure as SVG and PNG, one for papers as PDF, too. Raises OSError."""
    write_atomically(folder / f"{drawing.name}.svg", drawing.svg.encode())
    write_atomically(folder / f"{drawing.name}.png", drawing.png)
    if drawing.pdf:
        write_atomically(folder / f"{drawing.name}.pdf", drawing.pdf)
