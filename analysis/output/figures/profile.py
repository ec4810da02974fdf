"""The figures of a profile: time, memory and timeline of a training step, and sweeps."""

from typing import Any

from analysis.output.figures.style import COLOURS, GRID, Drawing, draw
from analysis.output.figures.style import PHASE_COLOURS as OF_A_RUN
from analysis.reading.profile import MemorySweep, Profile

PHASES = ("forward", "backward", "update", "input", "communication", "host")
PHASE_COLOURS = {
    name: OF_A_RUN[like]
    for name, like in zip(PHASES, ("train", "search", "checkpoint", "start", "build", "idle"), strict=True)
}
"""Those of the phases of a run, which every colour vision tells apart."""
MOST_OPERATIONS = 14

STACK = (
    ("weights", "weights_bytes"),
    ("intermediate", "intermediate_bytes"),
    ("temporary", "temporary_bytes"),
    ("unexplained", "unexplained_bytes"),
)


def profile_chart(profile: Profile) -> Drawing:
    """Seconds of a step by operation and phase on the left, memory by purpose on the right."""
    totals: dict[str, float] = {}
    for item in profile.operations:
        totals[item.operation] = totals.get(item.operation, 0.0) + item.seconds
    shown = sorted(totals, key=lambda name: -totals[name])[:MOST_OPERATIONS][::-1]
    labels = [name if len(name) <= 28 else f"{name[:27]}\N{HORIZONTAL ELLIPSIS}" for name in shown]

    def paint(figure: Any) -> None:
        left, right = figure.subplots(1, 2, width_ratios=(3, 1.2))
        start = dict.fromkeys(shown, 0.0)
        for phase in PHASES[:-1]:
            width: dict[str, float] = {}
            for item in profile.operations:
                if item.phase == phase:
                    width[item.operation] = width.get(item.operation, 0.0) + 1000 * item.seconds
            left.barh(
                range(len(shown)),
                [width.get(name, 0.0) for name in shown],
                left=[start[name] for name in shown],
                color=PHASE_COLOURS[phase],
                label=phase,
            )
            start = {name: start[name] + width.get(name, 0.0) for name in shown}
        left.set_yticks(range(len(shown)), labels)
        left.set_xlabel("milliseconds per step, over all threads")
        left.legend(loc="lower right")
        purposes = sorted((item for item in profile.memory_bytes.items() if item[1]), key=lambda item: item[1])
        right.barh([name for name, _ in purposes], [size / 1e6 for _, size in purposes], color=COLOURS[4])
        right.set_xlabel("MB")

    return draw("profile", "Time of a training step by kind of operation, and its memory by purpose.", paint, 3.6)


def timeline_chart(profile: Profile) -> Drawing:
    """One step on a time axis, a row for each thread, under the wall time of each phase."""
    blocks = profile.timeline.blocks
    lanes = sorted({block.lane for block in blocks}, key=lambda lane: (lane != "batch", lane))
    limit_ms = 1000 * max(profile.timeline.seconds, sum(profile.phases.values()))
    names = {lane: "batch" if lane == "batch" else f"thread {number}" for number, lane in enumerate(lanes)}

    def paint(figure: Any) -> None:
        top, bottom = figure.subplots(2, 1, height_ratios=(1, max(2, len(lanes))))
        reached = 0.0
        for phase in PHASES:
            seconds = 1000 * profile.phases.get(phase, 0.0)
            top.barh([0], [seconds], left=[reached], color=PHASE_COLOURS[phase], label=phase)
            reached += seconds
        top.set_yticks([0], ["mean step"])
        top.set_xlim(0, limit_ms)
        top.grid(visible=False)
        figure.legend(
            *top.get_legend_handles_labels(),
            loc="outside upper center",
            ncols=len(PHASES),
            columnspacing=1.0,
            handlelength=1.0,
        )
        for row, lane in enumerate(lanes):
            for phase in PHASES:
                own = [
                    (1000 * block.start_s, 1000 * (block.end_s - block.start_s))
                    for block in blocks
                    if block.lane == lane and block.phase == phase
                ]
                bottom.broken_barh(own, (row - 0.35, 0.7), color=PHASE_COLOURS[phase], linewidth=0)
        bottom.set_yticks(range(len(lanes)), [names[lane] for lane in lanes])
        bottom.invert_yaxis()
        bottom.set_xlim(0, limit_ms)
        bottom.set_xlabel("milliseconds from the begin of the step")

    caption = "Wall time of the mean training step by phase, and the threads of the executor in one step."
    return draw("timeline", caption, paint, 1.8 + 0.3 * len(lanes))


def sweep_chart(sweep: MemorySweep) -> Drawing:
    """Stacked memory of a step at each value that fits."""
    points = [point for point in sweep.points if point.fits]

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        reached = [0.0] * len(points)
        for (label, name), colour in zip(STACK, (*COLOURS[:3], GRID), strict=True):
            sizes = [max(0, getattr(point, name)) / 1e6 for point in points]
            axes.bar(range(len(points)), sizes, bottom=reached, color=colour, label=label)
            reached = [below + size for below, size in zip(reached, sizes, strict=True)]
        axes.set_xticks(range(len(points)), [str(point.value) for point in points])
        axes.set_xlabel("images per step" if sweep.axis == "batch" else "first side of the input")
        axes.set_ylabel("MB at the peak")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=len(STACK))

    return draw("sweep", "Memory of a training step against the size of its input.", paint)
