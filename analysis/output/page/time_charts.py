"""Charts over time: score, accuracy, use of the nodes, and the curve of one trial."""

from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource, Range1d, Span

from aiperf.cli.units import scale_of
from analysis.output.figures.style import COLOURS, time_unit
from analysis.output.page.plots import Chart, add_hover, add_legend, new_plot
from analysis.reading.run_data import RunData

POINTS = 240
"""Points of a curve."""

MANY_EPOCHS = 4000
"""Number of epochs above which the page shows an even selection; the CSV files have all."""

MANY_TRIALS = 150
"""Above this, curves of single trials are left out."""

OFFICIAL_ACCURACY = 0.7

Epoch = tuple[float, float, int, int]
"""Time, accuracy, trial, number of the epoch."""

EPOCH = np.dtype([("t", np.float64), ("accuracy", np.float64), ("trial", np.int64), ("epoch", np.int64)])
"""Row of an array of epochs."""


def score_chart(data: RunData) -> Chart:
    """Score and regulated score as if the run had ended at each moment."""
    assert data.start_ms is not None
    unit_s, unit = time_unit(data.duration_ms / 1000)
    points = data.course.timeline(data.start_ms, data.end_ms, max(1, data.duration_ms // POINTS))
    prefix, size = scale_of(max((max(point.ops, point.regulated_ops) for point in points), default=0.0))
    source = ColumnDataSource(
        {
            "t": [round(point.t_ms / 1000 / unit_s, 4) for point in points],
            "score": [_short(point.ops / size) for point in points],
            "regulated": [_short(point.regulated_ops / size) for point in points],
            "error": [_short(point.error) for point in points],
        }
    )
    plot = new_plot(f"{unit} since the start", f"score ({prefix}OPS)")
    plot.x_range, plot.y_range.start = Range1d(0, data.duration_ms / 1000 / unit_s), 0
    first = plot.line("t", "score", source=source, color=COLOURS[0], line_width=2.5, legend_label="score")
    tips = [("time", f"@t{{0.0[0]}} {unit}"), ("score", f"@score{{0.00}} {prefix}OPS")]
    if data.is_science:
        add_hover(plot, tips, [first], "vline")
        return Chart("score", "Operations per second of wall time as if the run had ended at each moment.", plot)
    plot.line(
        "t",
        "regulated",
        source=source,
        color=COLOURS[1],
        line_width=2,
        line_dash="dashed",
        legend_label="regulated score",
    )
    tips += [("regulated", f"@regulated{{0.00}} {prefix}OPS"), ("error", "@error{0.000}")]
    add_hover(plot, tips, [first], "vline")
    add_legend(plot)
    caption = "Score and regulated score as if the run had ended at each moment: operations per second of wall time."
    return Chart("score", caption, plot)


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def accuracy_chart(data: RunData) -> Chart | None:
    """Measured accuracy of epochs over time, and the best so far. None without any."""
    assert data.start_ms is not None
    unit_s, unit = time_unit(data.duration_ms / 1000)
    every = _epochs(data, data.start_ms, unit_s)
    if not len(every):
        return None
    best = np.maximum.accumulate(every["accuracy"])
    better = [0, *(np.flatnonzero(np.diff(best) > 0) + 1).tolist()]
    shown = every[:: -(-len(every) // MANY_EPOCHS)]
    plot = new_plot(f"{unit} since the start", "top-1 accuracy")
    end = data.duration_ms / 1000 / unit_s
    plot.x_range, plot.y_range = Range1d(0, end), Range1d(0, 1.02)
    if len(data.work) <= MANY_TRIALS:
        _curves(plot, every.tolist())
    columns = {name: shown[name].tolist() for name in EPOCH.names or ()}
    marks = plot.scatter(
        "t", "accuracy", source=ColumnDataSource(columns), size=5, color=COLOURS[0], alpha=0.7, legend_label="epochs"
    )
    times = [*every["t"][better].tolist(), end]
    heights = [*(float(best[place]) for place in better), float(best[-1])]
    plot.step(times, heights, mode="after", color=COLOURS[1], line_width=2.5, legend_label="best so far")
    plot.add_layout(Span(location=OFFICIAL_ACCURACY, dimension="width", line_color=COLOURS[2], line_dash="dotted"))
    add_hover(
        plot,
        [("trial", "@trial"), ("epoch", "@epoch"), ("accuracy", "@accuracy{0.0000}"), ("time", f"@t{{0.0[0]}} {unit}")],
        [marks],
    )
    add_legend(plot)
    some = "" if len(shown) == len(every) else f"; {len(shown):,} of {len(every):,} epochs are shown"
    caption = f"Measured validation accuracy of epochs{some}. Dotted: the least that an official run reaches."
    return Chart("accuracy", caption, plot)


def _epochs(data: RunData, start_ms: int, unit_s: float) -> Any:
    """The evaluated epochs in order of time, as an array of EPOCH."""
    work, accuracies = data.work.columns, data.work.columns.accuracies()
    known = ~np.isnan(accuracies)
    found = np.empty(int(known.sum()), EPOCH)
    times = ((work.epochs[known, 1] - start_ms) / 1000 / unit_s).tolist()
    found["t"] = [round(t, 4) for t in times]
    found["accuracy"] = [round(accuracy, 5) for accuracy in accuracies[known].tolist()]
    found["trial"] = np.array(data.work.trials, np.int64)[work.epochs[known, 0]]
    found["epoch"] = work.epochs[known, 2]
    # The last key counts first. The others decide between epochs of the same moment, so that a page
    # is the same each time.
    return found[np.lexsort((found["epoch"], found["trial"], found["accuracy"], found["t"]))]


def _curves(plot: Any, every: list[Epoch]) -> None:
    curves: dict[int, tuple[list[float], list[float]]] = {}
    for t, accuracy, trial, _ in every:
        times, values = curves.setdefault(trial, ([], []))
        times.append(t)
        values.append(accuracy)
    times_of, values_of = [times for times, _ in curves.values()], [values for _, values in curves.values()]
    plot.multi_line(times_of, values_of, color=COLOURS[0], alpha=0.35)


def utilisation_chart(data: RunData) -> Chart | None:
    """Use of accelerators, CPUs and their memory, mean over all nodes. None without two samples."""
    assert data.start_ms is not None
    unit_s, unit = time_unit(data.duration_ms / 1000)
    interval_s = data.manifest.config.telemetry.interval or 30.0
    bins = max(1, min(POINTS, round(data.duration_ms / 1000 / interval_s)))
    edges = np.linspace(data.start_ms, data.end_ms, bins + 1)
    names = {
        "accelerators": "accelerator_percent",
        "accelerator memory": "accelerator_memory_percent",
        "CPUs": "cpu_percent",
        "main memory": "memory_percent",
    }
    rows = {label: data.telemetry.binned(name, edges) for label, name in names.items()}
    middles = ((edges[1:] + edges[:-1]) / 2 - edges[0]) / 1000 / unit_s
    plot = new_plot(f"{unit} since the start", "in use (%)", height=220)
    # Above 100, else a line at full use would be cut to half its width.
    plot.x_range, plot.y_range, drawn = Range1d(0, data.duration_ms / 1000 / unit_s), Range1d(0, 102), []
    for colour, (label, values) in zip(COLOURS, rows.items(), strict=False):
        there = ~np.isnan(values)
        if there.sum() >= 2:
            columns = {"t": middles[there].round(4).tolist(), "use": values[there].round(1).tolist()}
            drawn.append(
                plot.line(
                    "t",
                    "use",
                    source=ColumnDataSource(columns),
                    color=colour,
                    line_width=2,
                    legend_label=label,
                    name=label,
                )
            )
    if not drawn:
        return None
    add_hover(plot, [("", "$name"), ("in use", "@use{0.0} %"), ("time", f"@t{{0.0[0]}} {unit}")], drawn)
    add_legend(plot)
    return Chart("utilisation", "Use of the nodes over time, mean over all nodes.", plot)


MEASURED = {"accuracy": "validation", "training": "training"}
"""Columns of a trial's curves and their labels."""


def trial_chart(trained: bool) -> Chart:
    """The curves of the trial that the reader opens: empty until then.

    `trained`: also on the training images.
    """
    plot = new_plot("epoch", "top-1 accuracy", height=200)
    plot.x_range, plot.y_range = Range1d(0, 1), Range1d(0, 1.02)
    source = ColumnDataSource({"epoch": [], "accuracy": [], "training": []}, name="curve")
    for colour, (column, label) in zip(COLOURS, [*MEASURED.items()][: 1 + trained], strict=False):
        dash, legend = ("dashed" if column == "training" else "solid"), ({"legend_label": label} if trained else {})
        plot.line("epoch", column, source=source, color=colour, line_width=2, line_dash=dash, **legend)
        marks = plot.scatter("epoch", column, source=source, size=7, color=colour)
        add_hover(plot, [("epoch", "@epoch"), (f"{label} accuracy", f"@{column}{{0.0000}}")], [marks])
    plot.xaxis[0].ticker.min_interval = 1
    add_legend(plot)
    how = "; on training images, as they were trained" if trained else ""
    return Chart("trial", f"Measured accuracy of each epoch of the trial, on validation images{how}.", plot)
