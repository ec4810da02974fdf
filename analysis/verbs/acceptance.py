"""The verb that holds a run against a baseline: `aiperf accept`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from aiperf.cli.command import Command, add_format, write_output
from aiperf.cli.console import open_console
from aiperf.cli.lines import say_json
from aiperf.cli.tables import make_table, print_line
from aiperf.cli.units import count
from aiperf.errors import EXIT_DONE, EXIT_REJECTED, UsageError
from analysis.results.acceptance import (
    SHARE,
    Acceptance,
    accept_by_limits,
    accept_by_run,
    junit_text,
    limits_text,
)
from analysis.results.source import read_result


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="DIR|ARCHIVE|report.json", help="the result to accept")
    parser.add_argument("--baseline", type=Path, required=True, metavar="DIR|ARCHIVE|report.json|LIMITS.toml",
                        help="a result of the same system, or limits of measures")  # fmt: skip
    parser.add_argument("--share", type=_share, metavar="SHARE",
                        help=f"part of a baseline result that is accepted (default: {SHARE:g})")  # fmt: skip
    parser.add_argument("--write-limits", type=Path, metavar="FILE",
                        help="also write the limits that follow from the baseline result")  # fmt: skip
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write the criteria as JUnit's XML")
    add_format(parser)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text}: a number above 0 and at most 1, such as {SHARE:g}")
    return value


def _accept(arguments: argparse.Namespace) -> int:
    run, baseline = read_result(arguments.run), arguments.baseline
    if baseline.suffix == ".toml":
        if arguments.share is not None or arguments.write_limits is not None:
            raise UsageError("--share and --write-limits are for a baseline result; a file has its limits")
        accepted = accept_by_limits(run, baseline)
    else:
        accepted = accept_by_run(run, read_result(baseline), arguments.share or SHARE)
    if arguments.write_limits is not None:
        write_output(arguments.write_limits, limits_text(accepted))
    if arguments.junit is not None:
        write_output(arguments.junit, junit_text(accepted))
    if arguments.format == "json":
        say_json(json.dumps(accepted.document(), indent=2))
    else:
        _print(accepted)
    return EXIT_REJECTED if accepted.failed else EXIT_DONE


def _print(accepted: Acceptance) -> None:
    console = open_console()
    table = make_table(f"{accepted.run} against {accepted.baseline}", "measure", "value", "limit", "baseline", "",
                       left=("measure", ""))  # fmt: skip
    for each in accepted.criteria:
        sign = ">=" if each.kind == "at_least" else "<="
        table.add_row(each.measure, _shown(each.value), f"{sign} {_shown(each.limit)}", _shown(each.reference),
                      "" if each.accepted else "not accepted")  # fmt: skip
    console.print(table)
    for each in accepted.failed:
        print_line(console, f"not accepted: {each.measure}: {each.text}")
    met = len(accepted.criteria) - len(accepted.failed)
    print_line(console, f"accepted: {met} of {count(len(accepted.criteria), 'measure')}")


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


ACCEPT = Command(
    description="Hold a result against an earlier one of its system, or against limits: exit code 0 if every measure "
    "is within its limit, 4 if not.",
    example="aiperf accept runs/today --baseline runs/reference --junit accept.xml",
    configure=_configure,
    execute=_accept,
)
