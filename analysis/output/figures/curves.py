"""Figures over time: score (paper, figure 4), use of the nodes (figure 5), phases, accuracy."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.patches import Patch

from aiperf.rules.score import TrialWork, timeline
from analysis.output.figures.style import COLOURS, PHASE_COLOURS, Drawing, draw, time_unit
from analysis.reading.run_data import RunData
from analysis.report.phases import Span, spans

POINTS = 240
"""Points of a curve."""

IMAGE_COLUMNS = 1200
MANY_SPANS = 4000
MANY_TRIALS = 400
"""Above these, marks become an image within the drawing, and curves of single trials are left out.
"""


def score_curve(data: RunData) -> Drawing:
    """OPS and regulated score as if the run had ended at each moment (paper, figure 4)."""
    assert data.start_ms is not None
    unit_s, unit = time_unit(data.duration_ms / 1000)
    points = timeline(list(data.work.values()), data.start_ms, data.end_ms, max(1, data.duration_ms // POINTS))

    def paint(figure: Any) -> None:
        left = figure.subplots()
        times = [point.t_ms / 1000 / unit_s for point in points]
        right = left.twinx()
        left.plot(times, [point.ops for point in points], color=COLOURS[0])
        right.plot(times, [point.regulated_ops for point in points], color=COLOURS[1], linestyle="--")
        left.set(xlabel=f"{unit} since the start", xlim=(0, None), ylim=(0, None))
        left.set_ylabel("score (OPS)", color=COLOURS[0])
        right.set_ylabel("regulated score (OPS)", color=COLOURS[1])
        right.set_ylim(0, None)
        right.grid(visible=False)
        right.spines["right"].set_visible(True)

    caption = "Score and regulated score over time: operations per second of wall time since the start."
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
        axes.set(xlabel=f"{unit} since the start", ylabel="in use (%)", ylim=(0, 102), xlim=(0, None))
        axes.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))

    return draw("utilisation", "Use of the nodes over time, mean over all nodes.", paint)


def phase_chart(data: RunData) -> Drawing:
    """Every replica's phases over the whole run."""
    unit_s, unit = time_unit(data.duration_ms / 1000)
    found = {number: spans(data, entry) for number, entry in sorted(data.ledger.replicas.items())}

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        end = data.duration_ms / 1000 / unit_s
        if sum(map(len, found.values())) > MANY_SPANS:
            image = _phase_image(found, data.duration_ms / 1000)
            axes.imshow(image, extent=(0, end, max(found) + 0.5, -0.5), aspect="auto", interpolation="nearest")
        else:
            for phase, colour in PHASE_COLOURS.items():
                boxes = [_box(row, span, unit_s) for row, own in found.items() for span in own if span.phase == phase]
                axes.add_collection(PolyCollection(boxes, facecolors=colour, linewidths=0))
        there = {span.phase for own in found.values() for span in own}
        seen = [Patch(color=colour, label=phase) for phase, colour in PHASE_COLOURS.items() if phase in there]
        axes.set(xlabel=f"{unit} since the start", ylabel="replica", xlim=(0, end))
        rows = max(found, default=0) + 1
        axes.set_ylim(rows - 0.4, -0.6)
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.grid(visible=False)
        axes.legend(handles=seen, ncols=7, loc="lower center", bbox_to_anchor=(0.5, 1.0),
                    handlelength=1, columnspacing=1)  # fmt: skip

    height_in = min(6.0, 1.2 + 0.3 * len(found))
    return draw("phases", "Phases of every replica over time.", paint, height_in)


def _phase_image(found: dict[int, list[Span]], end_s: float) -> Any:
    """RGBA by replica and moment: the colour of the phase that fills most of it."""
    edges = np.linspace(0, end_s, IMAGE_COLUMNS + 1)
    image = np.zeros((max(found) + 1, IMAGE_COLUMNS, 4))
    for row, own in found.items():
        bounds = np.array([(span.begin_s, span.end_s) for span in own]).reshape(-1, 2)
        phases = np.array([span.phase for span in own])
        cover = [_covered(bounds[phases == phase], edges) for phase in PHASE_COLOURS]
        palette = np.array([to_rgba(colour) for colour in PHASE_COLOURS.values()])
        image[row] = np.where(np.sum(cover, axis=0)[:, None] > 0, palette[np.argmax(cover, axis=0)], 0.0)
    return image


def _covered(bounds: Any, edges: Any) -> Any:
    """Seconds of each bin that disjoint spans cover."""
    if len(bounds) == 0:
        return np.zeros(len(edges) - 1)
    lengths = np.column_stack([np.zeros(len(bounds)), bounds[:, 1] - bounds[:, 0]])
    total = np.cumsum(lengths.ravel())
    return np.diff(np.interp(edges, bounds.ravel(), total))


def _box(row: int, span: Span, unit_s: float) -> list[tuple[float, float]]:
    left, right, top, bottom = span.begin_s / unit_s, span.end_s / unit_s, row - 0.4, row + 0.4
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def accuracy_curve(data: RunData) -> Drawing:
    """Measured accuracy of every epoch over time, trial by trial, and the best so far."""
    assert data.start_ms is not None
    unit_s, unit = time_unit(data.duration_ms / 1000)
    curves = {number: _epochs(trial, data.start_ms, unit_s) for number, trial in data.work.items()}
    few = len(curves) <= MANY_TRIALS
    if not few:  # the last epoch of each trial is enough
        curves = {number: curve[-1:] for number, curve in curves.items()}
    every = sorted(point for curve in curves.values() for point in curve)

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for curve in curves.values() if few else ():
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


def _epochs(trial: TrialWork, start_ms: int, unit_s: float) -> list[tuple[float, float]]:
    return [
        ((epoch.time_ms - start_ms) / 1000 / unit_s, epoch.body.accuracy)
        for epoch in trial.epochs
        if epoch.body.accuracy is not None
    ]
