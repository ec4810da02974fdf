"""Figures over time: score (paper, figure 4), use of the nodes (figure 5), phases, accuracy."""

from itertools import pairwise
from typing import Any

import numpy as np

from aiperf.cli.units import scale_of
from analysis.output.figures.style import COLOURS, PHASE_COLOURS, Drawing, draw, time_unit
from analysis.reading.run_data import RunData
from analysis.report.phases import INTERVALS, phase_summary

POINTS = 240
"""Points of a curve."""

MANY_TRIALS = 400
"""Above this, curves of single trials are left out, and marks become an image in the drawing."""


def score_curve(data: RunData) -> Drawing:
    """OPS and regulated score as if the run had ended at each moment (paper, figure 4)."""
    assert data.start_ms is not None
    unit_s, unit = time_unit(data.duration_ms / 1000)
    points = data.course.timeline(data.start_ms, data.end_ms, max(1, data.duration_ms // POINTS))

    prefix, size = scale_of(max(max(point.ops, point.regulated_ops) for point in points))

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        times = [point.t_ms / 1000 / unit_s for point in points]
        axes.plot(times, [point.ops / size for point in points], color=COLOURS[0], label="score")
        if not data.is_science:
            axes.plot(
                times,
                [point.regulated_ops / size for point in points],
                color=COLOURS[1],
                linestyle="--",
                label="regulated score",
            )
        axes.set(xlabel=f"{unit} since the start", ylabel=f"score ({prefix}OPS)", xlim=(0, None), ylim=(0, None))
        axes.legend(loc="best")

    scores = "Score" if data.is_science else "Score and regulated score"
    caption = f"{scores} over time: operations per second of wall time since the start."
    return draw("score", caption, paint)


def utilisation(data: RunData) -> Drawing | None:
    """Use of accelerators, CPUs and their memory, as far as it was sampled (paper, figure 5)."""
    assert data.start_ms is not None
    unit_s, unit = time_unit(data.duration_ms / 1000)
    interval_s = data.manifest.config.telemetry.interval or 30.0
    interval_bins = max(1, min(POINTS, round(data.duration_ms / 1000 / interval_s)))
    edges = np.linspace(data.start_ms, data.end_ms, interval_bins + 1)
    rows = {
        label: data.telemetry.binned(name, edges)
        for label, name in {
            "accelerators": "accelerator_percent",
            "accelerator memory": "accelerator_memory_percent",
            "CPUs": "cpu_percent",
            "main memory": "memory_percent",
        }.items()
    }
    sampled = {label: values for label, values in rows.items() if not np.isnan(values).all()}
    if not sampled:
        return None

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        middles = (edges[1:] + edges[:-1]) / 2
        for label, values in sampled.items():
            axes.plot((middles - edges[0]) / 1000 / unit_s, values, label=label, marker="." if len(values) < 3 else "")
        axes.set(
            xlabel=f"{unit} since the start",
            ylabel="in use (%)",
            ylim=(0, 102),
            xlim=(0, data.duration_ms / 1000 / unit_s),
        )
        axes.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))

    return draw("utilisation", "Use of the nodes over time, mean over all nodes.", paint)


def phase_chart(data: RunData) -> Drawing | None:
    """Share of the replicas' time by phase, over the run. None without any replica."""
    unit_s, unit = time_unit(data.duration_ms / 1000)
    parts = phase_summary(data).shares(PHASE_COLOURS)
    if not parts:
        return None
    edges = np.linspace(0, data.duration_ms / 1000 / unit_s, INTERVALS + 1)

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        below = np.zeros(INTERVALS)
        for phase, values in parts.items():
            axes.stairs(below + values, edges, baseline=below, fill=True, color=PHASE_COLOURS[phase], label=phase)
            below = below + values
        axes.set(
            xlabel=f"{unit} since the start", ylabel="share of all replicas (%)", xlim=(0, edges[-1]), ylim=(0, 100)
        )
        axes.grid(visible=False)
        axes.legend(ncols=len(parts), loc="lower center", bbox_to_anchor=(0.5, 1.0), handlelength=1, columnspacing=1)

    return draw("phases", "Share of the replicas' time by phase, over the run.", paint)


def accuracy_curve(data: RunData) -> Drawing:
    """Measured accuracy of every epoch over time, trial by trial, and the best so far."""
    assert data.start_ms is not None
    unit_s, unit = time_unit(data.duration_ms / 1000)
    few = len(data.work) <= MANY_TRIALS
    # Of many trials, the last epoch of each is enough.
    curves = _curves(data, data.start_ms, unit_s, last_only=not few)
    every = sorted(point for curve in curves for point in curve)

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for curve in curves if few else ():
            axes.plot(*zip(*curve, strict=True), color=COLOURS[0], alpha=0.45, linewidth=0.8) if curve else None
        if every:
            times, values = zip(*every, strict=True)
            axes.plot(
                times,
                values,
                ".",
                color=COLOURS[0],
                markersize=3,
                rasterized=not few,
                label="epochs" if few else "last epochs",
            )
            best = np.maximum.accumulate(values)
            end = data.duration_ms / 1000 / unit_s
            axes.step([*times, end], [*best, best[-1]], where="post", color=COLOURS[1], label="best so far")
            axes.legend(loc="lower right")
        axes.axhline(0.7, color=COLOURS[2], linestyle=":", linewidth=1)
        axes.set(xlabel=f"{unit} since the start", ylabel="top-1 accuracy", ylim=(0, 1.02), xlim=(0, None))

    caption = (
        f"Measured validation accuracy of {'every' if few else 'the last'} epoch of {len(data.work)} trials; "
        "dotted: the lowest of an official run."
    )
    return draw("accuracy", caption, paint)


def _curves(data: RunData, start_ms: int, unit_s: float, last_only: bool) -> list[list[tuple[float, float]]]:
    """Time and accuracy of each evaluated epoch of each trial, or of the last of them only."""
    work = data.work.columns
    accuracies = work.accuracies()
    known = ~np.isnan(accuracies)
    trials, times, accuracies = work.epochs[known, 0], work.epochs[known, 1], accuracies[known]
    if last_only and len(trials):
        last = np.append(np.diff(trials) != 0, True)
        trials, times, accuracies = trials[last], times[last], accuracies[last]
    pairs = list(zip(((times - start_ms) / 1000 / unit_s).tolist(), accuracies.tolist(), strict=True))
    ends = np.searchsorted(trials, np.arange(len(work) + 1)).tolist()
    return [pairs[begin:end] for begin, end in pairwise(ends)]
