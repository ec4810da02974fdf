"""Figure of hybrid training: the histogram of staleness, and where the time of groups went."""

from dataclasses import dataclass
from typing import Any

from analysis.output.figures.style import COLOURS, Drawing, draw
from analysis.report.hybrid.parts import HybridPart
from analysis.report.model import Report

MOST_BARS = 40
"""Bars of staleness; the last one has all that is above."""

MOST_GROUPS = 32
"""Groups whose time is drawn; the CSV files have all."""

TIMES = {"computing": COLOURS[0], "in the group": COLOURS[2], "waiting for servers": COLOURS[1]}
"""Parts of a group's time, each with its colour."""

CAPTION = (
    "Staleness of updates: updates of others that the servers had applied since the weights were read. "
    "Next to it, the time of each group."
)


@dataclass(frozen=True, slots=True)
class Shares:
    """The shares of a group's time in percent, in the order of `TIMES`."""

    group: str
    percents: tuple[float, ...]


def staleness_bars(part: HybridPart) -> tuple[list[str], list[float]]:
    """Names of bars, and their updates in percent of all."""
    histogram = part.staleness.histogram
    total = max(1, sum(histogram))
    names = [str(late) for late in range(min(len(histogram), MOST_BARS))]
    counts = list(histogram[: len(names)])
    if len(histogram) > MOST_BARS:
        names[-1] = f"{MOST_BARS - 1}+"
        counts[-1] += sum(histogram[MOST_BARS:])
    return names, [float(f"{100 * number / total:.6g}") for number in counts]


def shares_of(part: HybridPart) -> list[Shares]:
    """The shares of each group that has spent any time."""
    found = []
    for group in part.group_details[:MOST_GROUPS]:
        known = (group.computing_share, group.group_share, group.waiting_share)
        if None not in known:
            found.append(Shares(str(group.group), tuple(float(f"{100 * (share or 0):.6g}") for share in known)))
    return found


def hybrid_chart(report: Report) -> Drawing | None:
    """The figure; None if the run has no update of a hybrid training."""
    part = report.hybrid
    return None if part is None or not part.updates else draw("hybrid", CAPTION, lambda figure: _paint(figure, part))


def _paint(figure: Any, part: HybridPart) -> None:
    left, right = figure.subplots(1, 2)
    names, percents = staleness_bars(part)
    left.bar(range(len(names)), percents, color=COLOURS[0])
    every = max(1, len(names) // 8)
    left.set_xticks(range(0, len(names), every), names[::every])
    left.set(xlabel="staleness", ylabel="updates (%)")
    left.grid(visible=False, axis="x")
    left.set_axisbelow(True)
    shares = shares_of(part)
    places, below = [share.group for share in shares], [0.0] * len(shares)
    for number, (name, colour) in enumerate(TIMES.items()):
        own = [share.percents[number] for share in shares]
        right.bar(places, own, bottom=below, color=colour, label=name)
        below = [bottom + value for bottom, value in zip(below, own, strict=True)]
    right.set(xlabel="group", ylabel="time (%)", ylim=(0, 100))
    right.grid(visible=False)
    right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize=7, handlelength=1, columnspacing=0.8)
