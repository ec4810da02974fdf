"""Baselines: floors of measures by kind of device, in a TOML file that people review."""

from collections import defaultdict
from pathlib import Path
from statistics import median

from aiperf.config.toml_text import read_toml, toml_value
from aiperf.errors import UsageError
from aiperf.screening.measures import MEASURES
from aiperf.screening.outcome import Outcome, measured_in

HEADING = """\
# Floors for `aiperf screen --baseline`: no device of a kind may be below.
# In operations, bytes or images per second. Written from a screening of {at}, aiperf {version}:
# each floor is the median of the devices that were not bad, less {share:.0%}. Review it before use.
"""


def read_baseline(file: Path) -> dict[tuple[str, str], float]:
    """The floors of a file by kind and measure. Raises UsageError with every problem."""
    floors: dict[tuple[str, str], float] = {}
    problems = []
    for kind, table in read_toml(file).items():
        if not isinstance(table, dict):
            problems.append(f"{file}: {kind} is not a table of measures")
            continue
        for measure, value in table.items():
            if measure not in MEASURES:
                problems.append(f"{file}: [{kind}] {measure} is not a measure; known: {', '.join(MEASURES)}")
            elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
                problems.append(f"{file}: [{kind}] {measure} = {value!r} is not a positive number")
            else:
                floors[kind, measure] = float(value)
    if problems:
        raise UsageError(*problems)
    return floors


def write_baseline(outcome: Outcome) -> str:
    """A baseline from a screening: floors below the median of devices that were not bad."""
    bad = {(item.node, item.device) for item in outcome.bad}
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for item in measured_in(outcome.nodes, outcome.passes - 1):
        if item.row.value is not None and item.row.measure in MEASURES and (item.node, item.row.device) not in bad:
            values[item.row.kind][item.row.measure].append(item.row.value)
    lines = [HEADING.format(at=outcome.at, version=outcome.aiperf, share=outcome.lower_share)]
    for kind, measures in sorted(values.items()):
        lines.append(f"[{toml_value(kind)}]")
        for name, found in measures.items():
            middle, measure = median(found), MEASURES[name]
            floor = float(f"{middle * (1 - outcome.lower_share):.4g}")
            lowest, highest = measure.text(min(found)), measure.text(max(found))
            lines.append(f"{name} = {floor!r}  # {measure.text(floor)}; {len(found)} had {lowest} to {highest}")
        lines.append("")
    return "\n".join(lines)
