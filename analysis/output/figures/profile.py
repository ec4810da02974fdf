"""Where the time and the memory of a training step go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.output.figures.style import COLOURS, Drawing, draw

PHASES = ("forward", "backward", "update", "input")
MOST_OPERATIONS = 14


def profile_chart(operations: Sequence[Mapping[str, Any]], memory_bytes: Mapping[str, int]) -> Drawing:
    """Seconds of a step by kind of operation and phase on the left, memory by purpose on the right."""
    totals: dict[str, float] = {}
    for item in operations:
        totals[item["operation"]] = totals.get(item["operation"], 0.0) + item["seconds"]
    shown = sorted(totals, key=lambda name: -totals[name])[:MOST_OPERATIONS][::-1]

    def paint(figure: Any) -> None:
        left, right = figure.subplots(1, 2, width_ratios=(3, 1))
        start = dict.fromkeys(shown, 0.0)
        for phase, colour in zip(PHASES, COLOURS, strict=False):
            width = {item["operation"]: 1000 * item["seconds"] for item in operations if item["phase"] == phase}
            left.barh(shown, [width.get(name, 0.0) for name in shown], left=[start[name] for name in shown],
                      color=colour, label=phase)  # fmt: skip
            start = {name: start[name] + width.get(name, 0.0) for name in shown}
        left.set_xlabel("milliseconds a step, over all threads")
        left.legend(loc="lower right")
        names = sorted(memory_bytes, key=lambda name: memory_bytes[name])
        right.barh(names, [memory_bytes[name] / 1e6 for name in names], color=COLOURS[4])
        right.set_xlabel("MB")

    return draw("profile", "Time of a training step by kind of operation, and its memory by purpose.", paint, 3.6)
