"""`aiperf rehearse`: a run in virtual time, and its report."""

import argparse
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from aiperf.cli.command import Command, add_format, add_no_page, report_words
from aiperf.cli.lines import warn
from aiperf.cli.units import count
from aiperf.clock import SystemClock, format_utc
from aiperf.config.duration import format_duration
from aiperf.errors import EXIT_DONE, EXIT_FAILED, EnvironmentNotReadyError, UsageError
from aiperf.signals import heeded
from rehearsal.lifecycle import Outcome, Rehearsal, conduct
from rehearsal.verbs.options import add_rehearsal_options, read_rehearsal

FEW = 64
"""Replicas up to which every report of progress is rehearsed."""

SPARSE_S = 60.0
"""Seconds between the reports of a training in a large rehearsal: ten would be most of the work."""


def _configure(parser: argparse.ArgumentParser) -> None:
    add_rehearsal_options(parser)
    parser.add_argument("--output", type=Path, metavar="DIR", help="run directory (default: runs/rehearsal-TIME)")
    add_no_page(parser)
    add_format(parser)


def _execute(arguments: argparse.Namespace) -> int:
    rehearsal, clock = read_rehearsal(arguments), SystemClock()
    if rehearsal.config.run.replicas > FEW:
        rehearsal = replace(rehearsal, report_s=SPARSE_S)
    if arguments.output is None:
        stamp = format_utc(clock.utc_ms())[:19].replace(":", "").replace("-", "").replace("T", "-")
        arguments.output = Path("runs") / f"rehearsal-{stamp}"
    if arguments.output.exists():
        raise UsageError(f"--output {arguments.output}: there is something already; name a new directory")
    began_s = clock.monotonic_s()
    try:
        with heeded(interrupt):
            outcome = conduct(arguments.output, rehearsal)
    except OSError as error:
        raise EnvironmentNotReadyError([f"--output {arguments.output} cannot be written: {error}"]) from error
    warn(*_lines(rehearsal, outcome, clock.monotonic_s() - began_s))
    return EXIT_DONE if outcome.ended in ("deadline", "completed") else EXIT_FAILED


def interrupt() -> NoReturn:
    """End a rehearsal as Ctrl-C does: it has nothing to resume."""
    raise KeyboardInterrupt


def _lines(rehearsal: Rehearsal, outcome: Outcome, took_s: float) -> list[str]:
    run, kinds = rehearsal.config.run, Counter(fault.kind for fault in outcome.faults)
    faults = ", ".join(f"{count(number, kind)}" for kind, number in sorted(kinds.items())) or "none"
    return [
        f"rehearsed {count(run.replicas, 'replica')} for {format_duration(run.duration)} in {took_s:.1f} s, on "
        f"{rehearsal.machine.machine.name!r}"
        + (f", with {rehearsal.search} search" if run.suite == "automl" else "")
        + (f" and progress every {rehearsal.report_s:.0f} s" if rehearsal.report_s else ""),
        f"faults: {faults}; primaries: {outcome.primaries}",
    ]


REHEARSE = Command(
    description="Rehearse a run in virtual time: the real primary, agents and search; trainings only take their time. "
    "Writes a run directory that every other verb reads, and that is never official.",
    example="aiperf rehearse --machine h100-8x8 --replicas 8 --duration 12h --output runs/plan",
    configure=_configure,
    execute=_execute,
    follow_up=lambda arguments: report_words(arguments, arguments.output),
    leaves=lambda arguments: (
        f"remove what there is of the rehearsal: rm -r {shlex.quote(str(arguments.output))}"
        if arguments.output is not None and arguments.output.exists()
        else "nothing was changed"
    ),
)
