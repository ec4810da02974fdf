"""Figures 4, 5 and 6 of Ren et al. 2021 of any runs, as wide as one column of a page in print.

Lines differ in lightness, in their dashes and in their marks, so that they differ in grey, too.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from aiperf.cli.units import scale_of, si
from analysis.output.figures.style import GRID, Drawing, draw, time_unit

Floats = NDArray[np.floating[Any]]

COLUMN_IN = 3.4
"""Width of a column of text: 85 to 89 mm in journals of IEEE, ACM and Springer."""

LOOKS = (
    ("#0b3c5d", "-", "o"),
    ("#e08a00", "--", "s"),
    ("#7a1f3d", ":", "D"),
    ("#5ab8e8", "-.", "^"),
    ("#0c6b4f", (0, (5, 1, 1, 1, 1, 1)), "v"),
    ("#9aa0a8", (0, (1, 1)), "P"),
    ("#3d2f8f", (0, (8, 2)), "X"),
    ("#d98cb3", (0, (1, 3)), "<"),
    ("#4a3b12", (0, (4, 1, 1, 1)), ">"),
    ("#7fb069", (0, (8, 2, 2, 2)), "h"),
)
"""Colour, dashes and mark of a line; neighbours differ in lightness."""

MARKS = 6
"""Marks on a curve over time."""

LABEL = 48
"""Letters of a label that fit into the width of a column."""

DECADE = 8.0
"""Scores further apart than this factor have a logarithmic axis."""

SMALL = {"font.size": 7, "legend.fontsize": 6, "lines.linewidth": 1.1, "lines.markersize": 3.5}


@dataclass(frozen=True, slots=True)
class Use:
    """A share in use in percent over the bins of a run: mean, least and most of the nodes."""

    mean: Floats
    least: Floats
    most: Floats
    average: float
    """Mean over nodes and time."""


@dataclass(frozen=True, slots=True)
class Line:
    """One run as the figures have it."""

    system: str
    """Model of its devices, else of its processors: runs of one system are one series."""
    devices: int
    measure: str
    """Kind of the devices: accelerators or ranks."""
    duration_s: float
    times_s: Floats
    ops: Floats
    regulated_ops: Floats | None
    """None of scientific workloads."""
    edges_s: Floats
    use: Use | None
    """Use of the accelerators; None if it was not sampled, as of rehearsals."""
    memory: Use | None
    score_ops: float | None = None
    score_low: float | None = None
    score_high: float | None = None

    @property
    def size(self) -> str:
        """The number of devices with their kind."""
        return f"{self.devices:,} {self.measure if self.devices != 1 else self.measure.removesuffix('s')}"


def paper_drawings(lines: Sequence[Line]) -> tuple[Drawing, ...]:
    """The figures that the runs have data for, larger systems and runs last."""
    lines = sorted(lines, key=lambda line: (line.system, line.devices))
    found = [_over_time(lines)]
    if any(line.use or line.memory for line in lines):
        found.append(_in_use([line for line in lines if line.use or line.memory]))
    if any(line.score_ops for line in lines):
        found.append(_by_size([line for line in lines if line.score_ops]))
    return tuple(found)


def _figure(name: str, caption: str, height_in: float, paint: Callable[[Any], None]) -> Drawing:
    return draw(name, caption, paint, height_in, COLUMN_IN, SMALL)


def _systems(lines: Iterable[Line]) -> list[tuple[str, list[Line]]]:
    return [(system, list(own)) for system, own in groupby(lines, key=lambda line: line.system)]


def _over_time(lines: Sequence[Line]) -> Drawing:
    """Score and regulated score over time, a panel for each system (figure 4)."""
    systems = _systems(lines)

    def paint(figure: Any) -> None:
        panels = figure.subplots(len(systems), 1, squeeze=False)[:, 0]
        for axes, (system, own) in zip(panels, systems, strict=True):
            _paint_course(axes, system, own)
        panels[-1].set_xlabel(f"{_unit(lines)[1]} since the start")

    regulated = any(line.regulated_ops is not None for line in lines)
    caption = "Score over time at several scales; numbers in the labels are those at the end."
    if regulated:
        caption += " Thin lines in the same dashes: regulated score."
    return _figure("score-over-time", caption, 0.6 + 1.7 * len(systems), paint)


def _unit(lines: Iterable[Line]) -> tuple[float, str]:
    return time_unit(max(line.duration_s for line in lines))


def _paint_course(axes: Any, system: str, lines: Sequence[Line]) -> None:
    every = [values[values > 0] for line in lines for values in (line.ops, line.regulated_ops) if values is not None]
    top = max((float(values.max()) for values in every if values.size), default=1.0)
    ends = [float(line.ops[-1]) for line in lines if line.ops.size and line.ops[-1] > 0]
    prefix, size = scale_of(top)
    unit_s, _ = _unit(lines)
    for line, (colour, dashes, mark) in zip(lines, _looks(lines), strict=True):
        step = max(1, len(line.times_s) // MARKS)
        axes.plot(
            line.times_s / unit_s,
            line.ops / size,
            color=colour,
            linestyle=dashes,
            marker=mark,
            markevery=step,
            label=f"{line.size}: {si(float(line.ops[-1]), 'OPS')}",
        )
        if line.regulated_ops is not None:
            axes.plot(line.times_s / unit_s, line.regulated_ops / size, color=colour, linestyle=dashes, linewidth=0.5)
    axes.set_title(system, fontsize=7)
    axes.set(ylabel=f"score ({prefix}OPS)", xlim=(0, None))
    if ends and max(ends) > DECADE * min(ends):
        axes.set_yscale("log")
        _decades(axes, min(ends) / size / 4, 2 * top / size)
    else:
        axes.set_ylim(0, 1.08 * top / size)
    _legend(axes, 2, 1.14)


def _legend(axes: Any, columns: int, above: float = 1.0) -> None:
    """Put the legend above the axes, from their right end to the left edge of the figure.

    In the middle of the axes, one wider than they are would be cut off on both sides.
    """
    axes.legend(
        loc="lower right",
        bbox_to_anchor=(1.0, above),
        ncols=columns,
        handlelength=2.6,
        columnspacing=1.0,
        borderaxespad=0.3,
        borderpad=0.1,
    )


def _looks(lines: Sequence[Line]) -> list[tuple[Any, Any, str]]:
    return [LOOKS[place % len(LOOKS)] for place in range(len(lines))]


def _in_use(lines: Sequence[Line]) -> Drawing:
    """Use of accelerators and their memory over time, two panels for each system (figure 5)."""
    systems = _systems(lines)
    uses = {key: name for key, name in USES.items() if any(getattr(line, key) is not None for line in lines)}

    def paint(figure: Any) -> None:
        unit_s, unit = _unit(lines)
        parts = figure.subfigures(len(systems), 1, squeeze=False)[:, 0]
        for part, (system, own) in zip(parts, systems, strict=True):
            panels = part.subplots(1, len(uses), sharey=True, squeeze=False)[0]
            _paint_use(panels, own, uses, unit_s)
            panels[0].set(ylabel="in use (%)", ylim=(0, 102))
            for axes in panels:
                axes.set(xlabel=f"{unit} since the start", xlim=(0, max(line.duration_s for line in lines) / unit_s))
            handles, labels = panels[0].get_legend_handles_labels()
            part.legend(handles, labels, loc="outside upper right", title=system, title_fontsize=7, handlelength=2.6)

    caption = (
        "Use of accelerators and of their memory over time: mean over the nodes, band from the least to the most "
        "used node. The labels have the averages, first of the accelerators."
    )
    return _figure("use-over-time", caption, 2.0 * len(systems) + 0.12 * len(lines), paint)


USES = {"use": "devices", "memory": "memory"}
"""Panels of the figure of use: fields of a line, and their names."""


def _paint_use(panels: Sequence[Any], lines: Sequence[Line], uses: Mapping[str, str], unit_s: float) -> None:
    """One system's use. Lines of the first panel are labelled with the averages of all."""
    alpha = min(0.18, 0.5 / len(lines))  # many bands in one place would hide the lines
    for place, (line, (colour, dashes, mark)) in enumerate(zip(lines, _looks(lines), strict=True)):
        middles = (line.edges_s[1:] + line.edges_s[:-1]) / 2 / unit_s
        step = max(1, len(middles) // 4)
        look = {"color": colour, "linestyle": dashes, "marker": mark, "markersize": 2.5}
        shares = {name: getattr(line, key) for key, name in uses.items()}
        averages = ", ".join(f"{name} {use.average:.1f} %" for name, use in shares.items() if use is not None)
        panels[0].plot([], [], **look, label=f"{line.size}: {averages}")
        for axes, (name, use) in zip(panels, shares.items(), strict=True):
            axes.set_title(name, fontsize=7)
            if use is not None:
                axes.fill_between(middles, use.least, use.most, color=colour, alpha=alpha, linewidth=0)
                # Lines that lie on each other have their marks in different places.
                axes.plot(middles, use.mean, **look, markevery=(place * step // len(lines), step))


def _by_size(lines: Sequence[Line]) -> Drawing:
    """Score by devices, a series for each system, with the ideal line of each (figure 6)."""
    systems = _systems(lines)

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        prefix, size = scale_of(max(line.score_ops or 0.0 for line in lines))
        for (system, own), (colour, dashes, mark) in zip(systems, [*LOOKS] * len(systems), strict=False):
            devices = np.array([line.devices for line in own], float)
            scores = np.array([line.score_ops for line in own], float) / size
            ideal = scores[0] * devices / devices[0]
            axes.plot(devices, ideal, color=GRID, linewidth=0.7)
            label = system
            if len(own) > 1:
                share = f"{100 * scores[-1] / ideal[-1]:.1f} % of ideal at {own[-1].devices:,}"
                label += (": " if len(system) + len(share) < LABEL else ":\n") + share
            axes.plot(devices, scores, color=colour, linestyle=dashes, marker=mark, label=label)
            for line in own:
                if line.score_low is not None and line.score_high is not None:
                    axes.vlines(line.devices, line.score_low / size, line.score_high / size, color=colour)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(_plain))
        axes.xaxis.set_minor_formatter(NullFormatter())
        low, high = axes.get_ylim()
        _decades(axes, low / 1.5, high * 1.5)
        kinds = " or ".join(dict.fromkeys(line.measure for line in lines))
        axes.set(xlabel=kinds, ylabel=f"score ({prefix}OPS)")
        _legend(axes, 1)

    caption = (
        "Score by size on logarithmic axes. Grey lines: the score of each system's smallest run times the ratio of "
        "sizes. Bars: 95 % intervals."
    )
    return _figure("score-by-size", caption, 2.3 + 0.2 * len(systems), paint)


def _plain(value: float, _: int | None = None) -> str:
    """A plain number in place of a power."""
    return f"{value:,.6g}"


def _decades(axes: Any, low: float, high: float) -> None:
    """Limit the logarithmic axis of the scores; 2.5 times have a number at least."""
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    axes.yaxis.set_minor_formatter(NullFormatter())
