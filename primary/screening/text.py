"""The outcome of a screening in words: what to look at, and the nodes as lists to paste."""

import shlex

from rich.table import Table

from aiperf.cli.console import PlainConsole
from aiperf.screening.fabric import typical_fit
from aiperf.screening.measures import GIGA, MEASURES
from aiperf.screening.outcome import Outcome, kinds_of
from slurm.hostlists import compact

MOST_REASON = 200
"""Characters of a reason in a command to paste."""


def print_outcome(console: PlainConsole, outcome: Outcome) -> None:
    """Print the kinds with their medians, then bad nodes, then lists and commands."""
    _print_kinds(console, outcome)
    for line in [*_fits(outcome), *_alone(outcome)]:
        console.print(line, highlight=False)
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


def _fits(outcome: Outcome) -> list[str]:
    """The all-reduce as a machine file of `aiperf rehearse` has it."""
    found = {
        "within a node": typical_fit(outcome.meetings, True),
        "between nodes": typical_fit(outcome.meetings, False),
    }
    return [
        f"all-reduce {place}: latency {fit.latency_s * 1e6:.4g} us, bandwidth {fit.bytes_per_s / GIGA:.4g} GB/s"
        for place, fit in found.items()
        if fit is not None
    ]


def _alone(outcome: Outcome) -> list[str]:
    """The storage by one node alone."""
    return [
        f"{row.measure} by one node alone: {MEASURES[row.measure].text(row.value)}"
        for row in outcome.one_node
        if row.value is not None and row.measure in MEASURES
    ]


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
        shlex.join(
            [
                "scontrol",
                "update",
                f"nodename={host}",
                "state=drain",
                f"reason=aiperf screen: {' '.join(reasons[host][0].split())[:MOST_REASON]}",
            ]
        )
        for host in outcome.hosts
    ]


def _print_kinds(console: PlainConsole, outcome: Outcome) -> None:
    table = Table("kind", "measure", "devices", "lowest", "median", "highest")
    for row in kinds_of(outcome):
        table.add_row(row.kind, row.name, str(len(row.values)), row.lowest, row.median, row.highest)
    console.print(table)
