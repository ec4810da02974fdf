"""Figures for papers: all is inside of a column's width, and lines differ in grey."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from analysis.output.figures import style
from analysis.output.figures.paper import COLUMN_IN, LOOKS, Line, Use, paper_drawings

Systems = dict[str, tuple[float, tuple[int, ...]]]

SYSTEMS: Systems = {
    "Huawei Ascend 910": (46e12, (512, 1024, 2048, 4096)),
    "NVIDIA Tesla T4": (0.55e12, (80, 200, 400, 800)),
}

LONG: Systems = {
    "AMD EPYC 9654 96-Core Processor": (0.9e12, (64, 128)),
    "Intel(R) Xeon(R) Platinum 8480CTDX CPU @ 2.00GHz": (1e12, (64, 128)),
}
"""Systems of long names."""


def line(system: str, devices: int, each: float) -> Line:
    """A run of twelve hours."""
    times = np.linspace(0, 43_200, 50)
    ops = each * devices * (1 - np.exp(-times / 4000))
    edges = np.linspace(0, 43_200, 25)
    use = Use(np.full(24, 85.0), np.full(24, 80.0), np.full(24, 90.0), 85.0)
    return Line(
        system,
        devices,
        "accelerators",
        43_200.0,
        times,
        ops,
        1.6 * ops,
        edges,
        use,
        use,
        float(ops[-1]),
        0.97 * float(ops[-1]),
        1.03 * float(ops[-1]),
    )


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every figure that is drawn."""
    found: list[Any] = []

    class Kept(Figure):
        def __init__(self, *words: Any, **settings: Any) -> None:
            super().__init__(*words, **settings)
            found.append(self)

    monkeypatch.setattr(style, "Figure", Kept)
    return found


def whole_legends(figure: Any) -> list[Any]:
    """The legends of a figure, wherever they hang."""
    return [*(axes.get_legend() for axes in figure.axes), *(own for part in figure.subfigs for own in part.legends)]


@pytest.mark.parametrize("systems", [SYSTEMS, LONG], ids=["of the paper", "of long names"])
def test_legends_and_axes_are_inside_of_a_column(systems: Systems, figures: list[Any]) -> None:
    lines = [line(system, devices, each) for system, (each, sizes) in systems.items() for devices in sizes]
    drawings = paper_drawings(lines)
    assert [drawing.name for drawing in drawings] == ["score-over-time", "use-over-time", "score-by-size"]
    for drawing, figure in zip(drawings, figures, strict=True):
        assert figure.get_figwidth() == COLUMN_IN
        assert drawing.pdf.startswith(b"%PDF")
        figure.draw_without_rendering()
        whole, renderer = figure.bbox, FigureCanvasAgg(figure).get_renderer()
        legends = [legend for legend in whole_legends(figure) if legend is not None]
        assert len(legends) == (1 if drawing.name == "score-by-size" else len(systems)), "one for each system"
        for axes in figure.axes:
            for part in (axes, *legends):
                box = part.get_tightbbox(renderer)
                assert whole.x0 - 1 <= box.x0 < box.x1 <= whole.x1 + 1, (drawing.name, part)
                assert whole.y0 - 1 <= box.y0 < box.y1 <= whole.y1 + 1, (drawing.name, part)
            side_by_side = 2 if drawing.name == "use-over-time" else 1
            assert axes.get_window_extent(renderer).width > 0.7 / side_by_side * whole.width, (
                "not squeezed by its legend"
            )


def test_the_score_of_one_run_has_a_number_on_its_axis(figures: list[Any]) -> None:
    for score in (1.1e12, 4.2e12, 8e12):
        paper_drawings([line("CPU", 2, score / 2)])
        figure = figures.pop()
        figures.clear()
        (axes,) = figure.axes
        low, high = axes.get_ylim()
        shown = [
            label.get_text()
            for value, label in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
            if low <= value <= high
        ]
        assert any(shown), score


def test_ten_lines_differ_without_colours() -> None:
    dashes, marks = {repr(dash) for _, dash, _ in LOOKS}, {mark for *_, mark in LOOKS}
    assert len(dashes) == len(marks) == len(LOOKS) == 10


def test_what_no_run_has_samples_of_has_no_panel(figures: list[Any]) -> None:
    paper_drawings([replace(line("CPU", 2, 1e12), memory=None)])
    use = next(figure for figure in figures if figure.subfigs)
    assert [axes.get_title() for axes in use.axes] == ["devices"]
    (legend,) = use.subfigs[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["2 accelerators: devices 85.0 %"]
