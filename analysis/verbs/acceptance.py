"""The verb that holds a run against a baseline: `aiperf accept`."""

import argparse
import difflib
import json
from collections.abc import Mapping, Set
from math import isfinite
from pathlib import Path
from xml.etree import ElementTree

from aiperf.cli.command import Command, add_format, write_output
from aiperf.cli.console import open_console
from aiperf.cli.lines import say_json
from aiperf.cli.tables import make_table, print_line
from aiperf.cli.units import count
from aiperf.clock import SystemClock, format_utc
from aiperf.config.toml_text import read_toml, toml_value
from aiperf.errors import EXIT_DONE, EXIT_REJECTED, UsageError
from aiperf.untrusted.text import for_terminal, shown
from analysis.results.comparison import AT_LEAST, AT_MOST, SHARE, Acceptance, Criterion, accept_by_run, values_of
from analysis.results.source import RunResult, read_result

# Files of limits, and JUnit's XML.

Limits = Mapping[str, Mapping[str, float]]
"""Limits by measure, in the tables at_least and at_most."""


def accept_by_limits(run: RunResult, file: Path) -> Acceptance:
    """Compare a run with the limits of a file. Raises UsageError with all problems of the file."""
    values = values_of(run.scored)
    limits = read_limits(file, values.keys())
    criteria = [
        Criterion(name, values[name], limit, kind) for kind, own in limits.items() for name, limit in own.items()
    ]
    return Acceptance(str(run.origin), str(file), tuple(criteria), run.key, run.report.made)


def read_limits(file: Path, known: Set[str]) -> Limits:
    """The limits of a file, whose names are known measures. Raises UsageError."""
    document = read_toml(file)
    problems = [
        f"{file}: unknown table {shown(name)}; allowed are {AT_LEAST} and {AT_MOST}"
        for name in document
        if name not in (AT_LEAST, AT_MOST)
    ]
    found: dict[str, dict[str, float]] = {}
    for kind in (AT_LEAST, AT_MOST):
        own = document.get(kind, {})
        if not isinstance(own, dict):
            problems.append(f"{file}: {kind} is no table of measures")
            continue
        problems += [problem for name, limit in own.items() if (problem := _problem(file, name, limit, known))]
        found[kind] = own
    if not problems and not any(found.values()):
        problems.append(f"{file}: it has no limits: name measures in [{AT_LEAST}] or [{AT_MOST}]")
    if problems:
        raise UsageError(*problems)
    return found


def _problem(file: Path, name: str, limit: object, known: Set[str]) -> str | None:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "aiperf compare RUN RUN shows the measures"
        return f"{file}: no measure is named {shown(name)}; {hint}"
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not isfinite(limit):
        return f"{file}: the limit of {shown(name)} is not a number"
    return None


def limits_text(accepted: Acceptance) -> str:
    """The limits of an acceptance as a file of limits."""
    tables: dict[str, list[str]] = {AT_LEAST: [], AT_MOST: []}
    for each in accepted.criteria:
        tables[each.kind].append(f"{toml_value(each.measure)} = {toml_value(each.limit)}\n")
    return "\n".join(f"[{kind}]\n{''.join(lines)}" for kind, lines in tables.items() if lines)


def junit_text(accepted: Acceptance) -> str:
    """The criteria as JUnit's XML, a test case each, as continuous integration reads it."""
    failed = accepted.failed
    suite = ElementTree.Element(
        "testsuite",
        name="aiperf accept",
        tests=str(len(accepted.criteria)),
        failures=str(len(failed)),
        errors="0",
        skipped="0",
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name in ("run", "baseline"):
        value = for_terminal(getattr(accepted, name))
        ElementTree.SubElement(properties, "property", name=name, value=value)
    for each in accepted.criteria:
        case = ElementTree.SubElement(
            suite, "testcase", classname="aiperf.accept", name=for_terminal(each.measure), time="0"
        )
        if not each.accepted:
            ElementTree.SubElement(case, "failure", message=each.text, type=each.kind)
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


# The verb.


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="DIR|ARCHIVE|report.json", help="the result to accept")
    parser.add_argument(
        "--baseline",
        type=Path,
        required=True,
        metavar="DIR|ARCHIVE|report.json|LIMITS.toml",
        help="a result of the same system, or limits of measures",
    )
    parser.add_argument(
        "--share", type=_share, metavar="SHARE", help=f"part of a baseline result that is accepted (default: {SHARE:g})"
    )
    parser.add_argument(
        "--write-limits", type=Path, metavar="FILE", help="also write the limits that follow from the baseline result"
    )
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
        say_json(json.dumps(accepted.document(format_utc(SystemClock().utc_ms())), indent=2))
    else:
        _print(accepted)
    return EXIT_REJECTED if accepted.failed else EXIT_DONE


def _print(accepted: Acceptance) -> None:
    console = open_console()
    table = make_table(
        f"{accepted.run} against {accepted.baseline}", "measure", "value", "limit", "baseline", "", left=("measure", "")
    )
    for each in accepted.criteria:
        sign = ">=" if each.kind == "at_least" else "<="
        table.add_row(
            each.measure,
            _shown(each.value),
            f"{sign} {_shown(each.limit)}",
            _shown(each.reference),
            "" if each.accepted else "not accepted",
        )
    console.print(table)
    for each in accepted.failed:
        print_line(console, f"not accepted: {each.measure}: {each.text}")
    for other in accepted.machine:
        print_line(console, f"another machine: the {other.key} is {other.second}, that of the baseline {other.first}")
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
