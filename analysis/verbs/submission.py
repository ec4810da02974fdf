"""The verbs for publishing a result: `aiperf check` and `aiperf export`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from aiperf.cli.command import Command, add_format, add_run
from aiperf.cli.console import open_console
from aiperf.errors import EXIT_DONE, EXIT_FAILED
from aiperf.run_directory.paths import open_run
from analysis.output.artifacts import write_report
from analysis.output.systems import mlperf_system
from analysis.output.tables import make_table, print_line
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.results.archive import write_archive
from analysis.results.compliance import Compliance, check_result


def _configure_check(parser: argparse.ArgumentParser) -> None:
    add_run(parser, "result", "DIR|ARCHIVE|report.json")
    add_format(parser)


def _check(arguments: argparse.Namespace) -> int:
    compliance = check_result(arguments.result)
    report = compliance.report
    if arguments.format == "json":
        document = {
            "verdict": report.verdict if compliance.valid else "invalid",
            "recomputed": compliance.recomputed,
            "differences": list(compliance.differences),
            "rules": [rule.model_dump() for rule in report.rules],
            "score_ops": report.score_ops if compliance.valid else None,
            "regulated_score_ops": report.regulated_score_ops if compliance.valid else None,
            "error": report.error,
        }
        print(json.dumps(document, indent=2))  # noqa: T201
    else:
        _print_compliance(compliance)
    return EXIT_DONE if compliance.valid else EXIT_FAILED


def _print_compliance(compliance: Compliance) -> None:
    console, report = open_console(), compliance.report
    table = make_table(f"Rule set {report.rules_version}", "rule", "result", "found", "required")
    for rule in report.rules:
        table.add_row(rule.rule, "PASSED" if rule.passed else "FAILED", rule.found[:300], rule.required)
    console.print(table, markup=False)
    lines = [f"not as recorded: {difference}" for difference in compliance.differences]
    if not compliance.recomputed:
        lines.append("not recomputed: a report.json has no records; check its run directory or archive")
    lines.append(f"verdict: {report.verdict if compliance.valid else 'invalid'}")
    for line in [*lines, report.final_line]:
        print_line(console, line)


def _configure_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="DIR", help="run directory")
    parser.add_argument("--file", type=Path, metavar="ARCHIVE", help="default: DIR.tar.gz, next to the run directory")


def _export(arguments: argparse.Namespace) -> int:
    paths = open_run(arguments.run)
    target = arguments.file or paths.root.resolve().with_name(f"{paths.root.resolve().name}.tar.gz")
    data = read_run(paths)
    report = build_report(data)
    write_report(paths.report, data, report)
    count = write_archive(paths, target, mlperf_system(report))
    print(f"{target}: {count} files; check it anywhere with: aiperf check {target}")  # noqa: T201
    return EXIT_DONE


CHECK = Command(
    description="Check a run, an archive of aiperf export or a report against every rule; 1 means invalid.",
    example="aiperf check runs/first",
    configure=_configure_check,
    execute=_check,
)

EXPORT = Command(
    description="Pack the raw records, report, system description and checksums of a run for submission.",
    example="aiperf export runs/first --file first.tar.gz",
    configure=_configure_export,
    execute=_export,
)
