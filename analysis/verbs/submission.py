"""The verb that hands a run over, to a referee or to other tools: `aiperf export`."""

import argparse
import json
import shlex
from pathlib import Path

from aiperf.cli.command import Command, add_format, add_run, write_output
from aiperf.cli.lines import say, say_json, warn
from aiperf.clock import SystemClock
from aiperf.errors import EXIT_DONE
from aiperf.run_directory.paths import RunPaths, open_run
from analysis.output.artifacts import write_report
from analysis.output.systems import mlperf_system
from analysis.output.trackers import TRACKERS
from analysis.reading.run_data import RunData
from analysis.report.build import build_report
from analysis.report.model import Report
from analysis.report.state import read_now
from analysis.results.signatures import sign, statement_of
from analysis.results.submission_package import write_archive


def _configure_export(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--file", type=Path, metavar="ARCHIVE", help="archive to write (default: DIR.tar.gz, next to the run directory)"
    )
    parser.add_argument("--sign", type=Path, metavar="KEY", help="sign with an OpenSSH key, as ssh-keygen takes it")
    add_format(parser)
    others = parser.add_argument_group("other tools", "With these alone, nothing is packed.")
    others.add_argument("--tensorboard", metavar="DIR", help="write event files for TensorBoard below DIR")
    others.add_argument("--mlflow", metavar="URI", help="log to an MLflow server or folder (needs the extra [mlflow])")


def _export(arguments: argparse.Namespace) -> int:
    paths = open_run(arguments.run)
    data, state, _ = read_now(paths, SystemClock().utc_ms())
    report = build_report(data, state)
    places = {name: place for name in TRACKERS if (place := getattr(arguments, name)) is not None}
    lines = [TRACKERS.load(name)(data, report, place) for name, place in places.items()]
    document: dict[str, object] = {"run": str(arguments.run), "verdict": report.verdict, **places}
    if not places or arguments.file is not None or arguments.sign is not None:
        target, count = _pack(arguments, paths, data, report)
        lines.append(f"{target}: {count} files; check it anywhere with: aiperf check {shlex.quote(str(target))}")
        document |= {"archive": str(target), "files": count}
    if arguments.format == "json":
        say_json(json.dumps(document, indent=2))
    else:
        say(*lines)
    for line in _warnings(report):
        warn(f"aiperf: {line}")
    return EXIT_DONE


def _pack(arguments: argparse.Namespace, paths: RunPaths, data: RunData, report: Report) -> tuple[Path, int]:
    """Write the archive; its path and the number of its files."""
    target = arguments.file or paths.root.resolve().with_name(f"{paths.root.resolve().name}.tar.gz")
    write_report(paths.report, data, report)
    sealed: dict[str, bytes] = {}

    def seal(checksums: bytes) -> dict[str, bytes]:
        if arguments.sign is not None:
            sealed.update(sign(statement_of(paths, report, checksums), arguments.sign))
        return sealed

    count = write_archive(paths, target, mlperf_system(report), seal)
    for name, content in sealed.items():
        write_output(target.with_name(f"{target.name}.{name}"), content.decode())
    return target, count


def _warnings(report: Report) -> list[str]:
    """Warn that the result is invalid, with at most five reasons, or is not there yet."""
    if report.verdict == "running":
        return ["the run is in progress: what is exported has no verdict yet; export it again when it has ended"]
    if report.verdict != "invalid":
        return []
    reasons = [*map(str, report.damages), *(f"{item.rule}: {item.found[:200]}" for item in report.violations)]
    more = [f"and {len(reasons) - 5} more"] if len(reasons) > 5 else []
    return ["INVALID: this run has no score, and aiperf check rejects the archive", *reasons[:5], *more]


EXPORT = Command(
    description="Pack the raw records, report, system description and checksums of a run for submission; "
    "or hand the run to TensorBoard or MLflow.",
    example="aiperf export runs/first --file first.tar.gz",
    configure=_configure_export,
    execute=_export,
)
