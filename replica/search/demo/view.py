"""The output of `aiperf search` and `aiperf hpo`: their steps as tables with bars."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.table import Table

from aiperf.cli.console import PlainConsole
from aiperf.cli.units import si

if TYPE_CHECKING:
    from replica.search.demo.architectures import SearchStep
    from replica.search.demo.hyperparameters import HpoStep

BAR_WIDTH = 40


def print_search(console: PlainConsole, steps: Iterable[SearchStep]) -> None:
    """Print one row per step: its value as a bar, and the best so far as the bar's end."""
    table = Table()
    for heading in ("step", "CPU s", "architecture", "operations", "morphs", "value", "best"):
        table.add_column(heading, justify="left" if heading == "architecture" else "right")
    table.add_column("value and best, 0 to 1")
    for number, step in enumerate(steps, start=1):
        table.add_row(
            str(number),
            f"{step.seconds:.2f}",
            step.architecture,
            si(step.operations, "OP"),
            str(step.morphs),
            f"{step.value:.4f}",
            f"{step.best:.4f}",
            _bar(step.value, step.best),
        )
    console.print(table)


def print_hpo(console: PlainConsole, steps: Iterable[HpoStep]) -> None:
    """Print one row per step: the suggestion, its value as a bar, the best so far as its end."""
    table = Table()
    for heading in ("step", "point", "value", "best"):
        table.add_column(heading, justify="left" if heading == "point" else "right")
    table.add_column("value and best, 0 to 1")
    for number, step in enumerate(steps, start=1):
        point = ", ".join(
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in step.point.items()
        )
        table.add_row(str(number), point, f"{step.value:.4f}", f"{step.best:.4f}", _bar(step.value, step.best))
    console.print(table)


def _bar(value: float, best: float) -> str:
    filled, end = round(value * BAR_WIDTH), round(best * BAR_WIDTH)
    return "#" * filled + "." * max(0, end - filled) + "|"
