"""The verb `aiperf doctor`, and `aiperf run --dry-run`: what can be known before a run."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from aiperf.cli.command import Command, add_format, duration
from aiperf.cli.console import open_console, plain
from aiperf.cli.lines import say_json
from aiperf.cli.run_options import add_run_options, read_run_options
from aiperf.cli.tables import print_line
from aiperf.clock import SystemClock
from aiperf.errors import EXIT_DONE, EXIT_ENVIRONMENT, ConfigError
from primary import preflight
from primary.doctor.contract import Finding
from primary.doctor.diagnosis import PROBE_STEPS, TIME_LIMIT_S, Order, diagnose

STYLES = {"ok": "green", "warning": "yellow", "failed": "bold red", "not examined": "cyan"}


def _configure(parser: argparse.ArgumentParser) -> None:
    add_run_options(parser)
    parser.add_argument("--output", type=Path, metavar="DIR", help="run directory that the run would have")
    parser.add_argument(
        "--time-limit",
        type=duration,
        default=TIME_LIMIT_S,
        metavar="TIME",
        help="longest wait for a node, with queues and the probe (default: 15m)",
    )
    parser.add_argument("--no-probe", action="store_true", help=f"do not train {PROBE_STEPS} steps on every node")
    add_format(parser)


def _execute(arguments: argparse.Namespace) -> int:
    return examine(arguments, 0 if arguments.no_probe else PROBE_STEPS, arguments.time_limit)


def examine(arguments: argparse.Namespace, steps: int, limit_s: float = TIME_LIMIT_S) -> int:
    """Print the findings about the run that the options ask for; 3 if it would fail."""
    try:
        config = read_run_options(arguments)
    except ConfigError as error:
        remedy = "aiperf config show (with the same options, once they are right)"
        findings = [Finding("settings", "failed", problem, remedy) for problem in error.problems]
    else:
        clock = SystemClock()
        output = arguments.output or preflight.default_output(config, clock)
        findings = diagnose(Order(config, output, steps, limit_s), clock)
    _print(findings, arguments.format)
    return EXIT_ENVIRONMENT if any(finding.status == "failed" for finding in findings) else EXIT_DONE


def _print(findings: Sequence[Finding], form: str) -> None:
    if form == "json":
        say_json(json.dumps([asdict(finding) for finding in findings], indent=2))
        return
    table = Table("check", "status", "found", "remedy", show_lines=True)
    for item in findings:
        table.add_row(item.check, plain(item.status, STYLES[item.status]), item.found, item.remedy)
    console = open_console()
    console.print(table)
    for item in findings:
        if item.status == "failed":  # whole, since cells are narrow: the remedy can be pasted
            print_line(console, f"{item.check}: {item.found}; {item.remedy}")
    failed, warnings, unknown = (
        sum(item.status == status for item in findings) for status in ("failed", "warning", "not examined")
    )
    verdict = (
        "a run would fail" if failed else "a run can start, as far as it was examined" if unknown else "a run can start"
    )
    left = f", {unknown} not examined" if unknown else ""
    console.print(f"{verdict}: {failed} failed, {warnings} warning(s){left}", highlight=False)


DOCTOR = Command(
    description="Find every problem that a run would have, before it starts: on every node, all at once.",
    example="aiperf doctor --preset quick",
    configure=_configure,
    execute=_execute,
    leaves=lambda _: "the nodes were left as they were",
)
