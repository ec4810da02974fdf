"""The figure of a profile: time and memory of a training step."""

from __future__ import annotations

from typing import Any

from analysis.output.figures.style import COLOURS, Drawing, draw
from analysis.reading.profile import Profile

PHASES = ("forward", "backward", "update", "input")
MOST_OPERATIONS = 14


def profile_chart(profile: Profile) -> Drawing:
    """Seconds of a step by operation and phase on the left, memory by purpose on the right."""
    totals: dict[str, float] = {}
    for item in profile.operations:
        totals[item.operation] = totals.get(item.operation, 0.0) + item.seconds
    shown = sorted(totals, key=lambda name: -totals[name])[:MOST_OPERATIONS][::-1]

    def paint(figure: Any) -> None:
        left, right = figure.subplots(1, 2, width_ratios=(3, 1))
        start = dict.fromkeys(shown, 0.0)
        for phase, colour in zip(PHASES, COLOURS, strict=False):
            width = {item.operation: 1000 * item.seconds for item in profile.operations if item.phase == phase}
            left.barh(shown, [width.get(name, 0.0) for name in shown], left=[start[name] for name in shown],
                      color=colour, label=phase)  # fmt: skip
            start = {name: start[name] + width.get(name, 0.0) for name in shown}
        left.set_xlabel("milliseconds per step, over all threads")
        left.legend(loc="lower right")
        purposes = sorted(profile.memory_bytes.items(), key=lambda item: item[1])
        right.barh([name for name, _ in purposes], [size / 1e6 for _, size in purposes], color=COLOURS[4])
        right.set_xlabel("MB")

    return draw("profile", "Time of a training step by kind of operation, and its memory by purpose.", paint, 3.6)
