"""The verb `aiperf micro`, and its output as a table and CSV."""

import argparse
import csv
import io
import json
import os
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from aiperf.cli.command import Command, add_format, whole_number, write_output
from aiperf.cli.console import PlainConsole, open_console
from aiperf.cli.lines import say_json, say_text, warn
from aiperf.cli.units import percent, si
from aiperf.clock import SystemClock
from aiperf.errors import EXIT_DONE, EnvironmentNotReadyError, UsageError
from aiperf.frameworks import import_lean
from aiperf.machine.energy_counters import energy_of
from aiperf.network.roofline import ITEM_SIZES
from aiperf.processes import python_module
from aiperf.untrusted.text import for_cell, shown
from replica.measure.micro.measure import FULL, QUICK
from replica.measure.micro.sizes import energy_counter
from replica.measure.micro.stacks import STACKS, missing
from replica.measure.micro.suite import BATCHES, Runner
from workloads.micro import OPERATORS, selected

Row = dict[str, Any]


def as_csv(rows: list[Row]) -> str:
    """Format the results as CSV, one a line."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = list(rows[0])
    writer.writerow(names)
    for row in rows:
        writer.writerow([for_cell(row[name]) if isinstance(row[name], str) else row[name] for name in names])
    return text.getvalue()


def print_table(console: PlainConsole, rows: list[Row]) -> None:
    """Print all results, ceilings first, and the best convolution: the upper bound of the suite."""
    table = Table(title="Micro suite", title_justify="left")
    for heading in ("Operator", "Kind", "Shape", "Pass", "Stack", "Batch"):
        table.add_column(heading, justify="right" if heading == "Batch" else "left")
    energy = ["OP/J"] if any(row.get("operations_per_joule") for row in rows) else []
    for heading in ("OPS", "Images/s", "B/s", "Of ceiling", "Bound", "Spread", "Error", *energy):
        table.add_column(heading, justify="left" if heading == "Bound" else "right")
    for row in rows:
        spread = percent(row["spread"]) + (" noisy" if row["noisy"] else "")
        over = " *" if row["mark"] else ""
        table.add_row(
            row["operator"],
            row["kind"],
            row["shape"],
            row["pass"],
            row["stack"],
            str(row["batch"]),
            si(row["ops_per_s"], "OPS"),
            si(row["images_per_s"]),
            ("at most " if row["upper_bound"] else "") + si(row["bytes_per_s"], "B/s"),
            percent(min(row["share_of_ceiling"], 1.0)) + over if row["share_of_ceiling"] is not None else "-",
            row["bound"] or "-",
            spread,
            f"{row['error_against_reference']:.0e}",
            *([si(row["operations_per_joule"], "OP/J")] * len(energy)),
        )
    console.print(table)
    if any(row["mark"] for row in rows):
        console.print("* at the ceiling or above: the algorithm saves operations, or the data are in a cache")
    convolutions = [row for row in rows if row["operator"] == "conv"]
    if convolutions:
        best = max(convolutions, key=lambda row: float(row["ops_per_s"]))
        console.print(f"best convolution: {si(best['ops_per_s'], 'OPS')} ({best['shape']}, {best['stack']})")


KINDS = {"dense": "dense2d", "sparse": "sparse2d", "3d": "dense3d"}


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--operators", default=",".join(OPERATORS), metavar="LIST", help="operators to measure (default: %(default)s)"
    )
    parser.add_argument("--kinds", default=",".join(KINDS), metavar="LIST", help="kinds of data (default: %(default)s)")
    parser.add_argument(
        "--stack",
        default="",
        metavar="LIST",
        help=f"software: {','.join(STACKS)}, or all (default: the first installed)",
    )
    parser.add_argument(
        "--precision", choices=tuple(ITEM_SIZES), default="float32", help="arithmetic (default: %(default)s)"
    )
    parser.add_argument("--batch", type=whole_number(1), metavar="N", help="images a call (default: best of 1, 8, 64)")
    parser.add_argument("--quick", action="store_true", help="one shape for each operator and kind, short blocks")
    parser.add_argument("--output", type=Path, metavar="FILE", help="also write the results as JSON")
    add_format(parser, ("table", "json", "csv"))


def _execute(arguments: argparse.Namespace) -> int:
    operators = _known("operator", arguments.operators, OPERATORS)
    kinds = tuple(KINDS[name] for name in _known("kind", arguments.kinds, tuple(KINDS)))
    stacks = _stacks(arguments.stack)
    if len(stacks) > 1:
        rows = [row for stack in stacks for row in _apart(arguments, stack)]
    else:
        rows = _measured(arguments, stacks[0], operators, kinds)
    if not rows:
        raise EnvironmentNotReadyError(["nothing could be measured; the reasons are above"])
    document = json.dumps(rows, indent=2)
    if arguments.output is not None:
        write_output(arguments.output, document + "\n")
    if arguments.format == "json":
        say_json(document)
    elif arguments.format == "csv":
        say_text(as_csv(rows))
    else:
        print_table(open_console(), rows)
    return EXIT_DONE


def _known(what: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Pick the known names of a list, and complain about others. Raises UsageError without any."""
    names = [name for name in text.split(",") if name]
    found = tuple(name for name in names if name in known)
    if not found:
        raise UsageError(f"no known {what} in {shown(text)}; known: {', '.join(known)}")
    for name in names:
        if name not in known:
            warn(f"aiperf: unknown {what} {shown(name)}; known: {', '.join(known)}")
    return found


def _stacks(text: str) -> tuple[str, ...]:
    """Find the stacks that can be used here; print the reasons against others that were asked for.

    Raises EnvironmentNotReadyError if there is none.
    """
    asked = _known("stack", ",".join(STACKS) if text in ("", "all") else text, tuple(STACKS))
    reasons = {name: missing(name) for name in asked}
    found = tuple(name for name in asked if not reasons[name])
    if not found:
        raise EnvironmentNotReadyError([f"stack {name}: {reason}" for name, reason in reasons.items()])
    if text:
        warn(*(f"aiperf: stack {name} is left out: {reason}" for name, reason in reasons.items() if reason))
    return found if text else found[:1]


def _measured(
    arguments: argparse.Namespace, name: str, operators: tuple[str, ...], kinds: tuple[str, ...]
) -> list[dict[str, Any]]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if name == "tensorflow":
        import_lean(name)
    batches = (arguments.batch,) if arguments.batch else BATCHES[:1] if arguments.quick else BATCHES
    stack, seconds = STACKS.load(name)(), SystemClock().monotonic_s
    runner = Runner(
        name,
        stack,
        arguments.precision,
        seconds,
        lambda text: warn(f"aiperf: {name}: {text}"),
        QUICK if arguments.quick else FULL,
        batches,
        energy=partial(energy_of, energy_counter(stack.device()), seconds),
    )
    return [result.as_document() for result in runner.run(selected(operators, kinds, arguments.quick))]


def _apart(arguments: argparse.Namespace, stack: str) -> list[dict[str, Any]]:
    """Measure one of several stacks; give its results.

    A process of its own: threads of one framework would compete with those of the next.
    """
    words = [
        "--stack",
        stack,
        "--operators",
        arguments.operators,
        "--kinds",
        arguments.kinds,
        "--precision",
        arguments.precision,
        "--format",
        "json",
    ]
    words += ["--quick"] if arguments.quick else []
    words += ["--batch", str(arguments.batch)] if arguments.batch else []
    done = subprocess.run(
        python_module("replica.measure.micro", *words), stdout=subprocess.PIPE, text=True, check=False
    )
    rows: list[dict[str, Any]] = json.loads(done.stdout) if done.returncode == EXIT_DONE else []
    return rows


MICRO = Command(
    description="Measure single operators on the data of scientific workloads, and the ceilings of this device.",
    example="aiperf micro --quick --stack tensorflow,native",
    configure=_configure,
    execute=_execute,
)
