"""The outcome of a screening in words: what to look at, and the nodes as lists to paste."""

from __future__ import annotations

import shlex
from collections import defaultdict
from statistics import median

from rich.table import Table

from aiperf.cli.console import PlainConsole
from aiperf.screening.measures import MEASURES
from aiperf.screening.outcome import Outcome, measured_in
from slurm.hostlists import compact

MOST_REASON = 200
"""Characters of a reason in a command to paste."""


def print_outcome(console: PlainConsole, outcome: Outcome) -> None:
    """Print the kinds with their medians, then bad nodes, then lists and commands."""
    _print_kinds(console, outcome)
    for remark in outcome.remarks:
        console.print(f"remark: {remark}", highlight=False)
    count, bad = len(outcome.nodes), outcome.bad_nodes
    if not bad:
        console.print(f"no bad node among {count} ({outcome.passes} pass(es))", highlight=False)
        return
    table = Table("node", "what was found", show_lines=True)
    for node in bad:
        table.add_row(node, "\n".join(outcome.reasons(node)))
    console.print(table)
    console.print(f"{len(bad)} of {count} nodes are bad ({outcome.passes} pass(es)): {' '.join(bad)}", highlight=False)


def lines_to_paste(outcome: Outcome) -> list[str]:
    """The bad nodes as a host list, and commands that drain them, which nobody has run."""
    if not outcome.hosts:
        return []
    hosts = compact(outcome.hosts)
    lines = [f"host list: {hosts}", f"to run without them: --exclude {shlex.quote(hosts)}"]
    if outcome.launcher == "slurm":
        lines.append("to drain them (not done):")
        lines += [f"  {command}" for command in drain_commands(outcome)]
    return lines


def drain_commands(outcome: Outcome) -> list[str]:
    """A command of SLURM for each bad node, with the first reason."""
    reasons = {node.known_as: outcome.reasons(node.name) for node in outcome.nodes if node.known_as}
    return [
        shlex.join(["scontrol", "update", f"nodename={host}", "state=drain",
                    f"reason=aiperf screen: {' '.join(reasons[host][0].split())[:MOST_REASON]}"])
        for host in outcome.hosts
    ]  # fmt: skip


def _print_kinds(console: PlainConsole, outcome: Outcome) -> None:
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for item in measured_in(outcome.nodes, max(0, outcome.passes - 1)):
        if item.row.value is not None:
            values[item.row.kind, item.row.measure].append(item.row.value)
    table = Table("kind", "measure", "devices", "lowest", "median", "highest")
    for (kind, name), found in values.items():
        measure = MEASURES.get(name)
        if measure is not None:
            table.add_row(
                kind, name, str(len(found)), *(measure.text(x) for x in (min(found), median(found), max(found)))
            )
    console.print(table)
