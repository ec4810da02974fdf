"""The verbs that read all records of one run: `aiperf report` and `aiperf verify`."""

import argparse
import json
import shlex
from pathlib import Path

from aiperf.cli.command import Command, add_format, add_no_page, add_run
from aiperf.cli.lines import say, say_json, to_open, warn
from aiperf.clock import SystemClock
from aiperf.config.duration import format_duration
from aiperf.errors import EXIT_DONE, EXIT_FAILED, EnvironmentNotReadyError, UsageError
from aiperf.run_directory.changes import look_at
from aiperf.run_directory.micro_results import read_rows
from aiperf.run_directory.paths import RunPaths, open_run
from aiperf.run_directory.state import OVER, State, next_command
from aiperf.storage.patience import PATIENCE
from analysis.output.tables import print_report
from analysis.reading.run_data import RunData
from analysis.reading.workers import no_garbage_collection
from analysis.report.build import build_report
from analysis.report.state import recorded_state, seconds_left
from analysis.results.glance import keep_status
from analysis.results.source import opened_run, read_result_data
from analysis.results.status import run_status
from analysis.results.submission_package import OWN_FILES, is_archive
from analysis.results.verify import examine

PATIENCE_S = 10.0
"""Longest wait for each file of a report; the result is printed without them."""


def _configure(parser: argparse.ArgumentParser) -> None:
    add_run(parser, metavar="DIR|ARCHIVE")
    add_format(parser)


def _configure_report(parser: argparse.ArgumentParser) -> None:
    _configure(parser)
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="folder for the files (default: DIR/report)")
    add_no_page(parser)
    parser.add_argument(
        "--micro", type=Path, metavar="FILE", help="ceilings of such nodes, as 'aiperf micro --output FILE' writes them"
    )


def _report(arguments: argparse.Namespace) -> int:
    if arguments.output is None and is_archive(arguments.run):
        raise UsageError(f"{arguments.run} is an archive, which stays as it is: name a folder for its report, --output")
    if arguments.micro is not None and arguments.output is None:
        raise UsageError("--micro needs --output: the report in the run directory is made from the run alone")
    with opened_run(arguments.run) as folder:
        return _report_of(arguments, open_run(folder))


def _report_of(arguments: argparse.Namespace, paths: RunPaths) -> int:
    micro = () if arguments.micro is None else read_rows(arguments.micro)
    seen, unpacked = look_at(paths), paths.root != arguments.run
    with no_garbage_collection():
        data, state = read_result_data(paths, unpacked)
        report = build_report(data, state, micro=micro)
    if arguments.output is None and recorded_state(data) in OVER:
        keep_status(paths, run_status(data, report, None, data.end_ms), seen)
    # Tables take memory that processes that read can do without.
    from analysis.output.artifacts import write_numbers, write_report  # noqa: PLC0415

    folder, page, problem = arguments.output or paths.report, None, None
    try:
        with PATIENCE.set(PATIENCE_S):
            if arguments.no_page:
                write_numbers(folder, data, report)
            else:
                page = write_report(folder, data, report)
    except EnvironmentNotReadyError as error:
        problem = error  # the result is printed all the same
    if arguments.format == "json":
        say_json(report.model_dump_json(indent=2))
        # Standard output is for the document alone.
        warn(report.final_line)
    else:
        print_report(report, page, [] if problem is not None else _next_lines(arguments.run, data, state, page))
    if problem is not None:
        raise problem
    return EXIT_DONE


def _next_lines(run: Path, data: RunData, state: State | None, page: Path | None) -> list[str]:
    """Suggest next commands to the reader of a report. An archive has no state."""
    left_s = seconds_left(data, SystemClock().utc_ms())
    left = "" if left_s is None else f", for the {format_duration(left_s)} that are left"
    checked = f"check it against every rule: aiperf check {shlex.quote(str(run))}"
    command = "" if state is None else next_command(state, data.paths)
    first = (
        checked
        if state is None
        else {
            **dict.fromkeys(OVER, checked),
            "interrupted": f"resume the run{left}: {command}",
            "silent": f"resume the run if its primary is dead{left}: {command}",
        }.get(state, f"watch the run: {command}")
    )
    if state == "failed" and data.start_ms is None:
        first = (
            "correct the cause, then start again with a new --output; aiperf doctor with the same options examines "
            "every node first"
        )
    if page is None:
        return [first, f"draw its page and figures: aiperf report {shlex.quote(str(run))}"]
    return [first, to_open(page)]


REPORT = Command(
    description="Recompute a run from its raw records; writes a page, JSON, CSV tables and figures to DIR/report.",
    example="aiperf report runs/first --format json",
    configure=_configure_report,
    execute=_report,
    leaves=lambda arguments: f"the records are whole; again: aiperf report {shlex.quote(str(arguments.run))}",
)


def _configure_verify(parser: argparse.ArgumentParser) -> None:
    add_run(parser, metavar="DIR|ARCHIVE")
    add_format(parser)


def _verify(arguments: argparse.Namespace) -> int:
    with opened_run(arguments.run) as folder:
        paths = open_run(folder)
        problems, notes = examine(paths, OWN_FILES if folder != arguments.run else ())
    if arguments.format == "json":
        say_json(json.dumps({"run": str(arguments.run), "problems": problems, "notes": notes}, indent=2))
    else:
        warn(*(f"note: {note}" for note in notes))
        say(*problems, f"{arguments.run}: {len(problems)} problem(s)")
    return EXIT_FAILED if problems else EXIT_DONE


VERIFY = Command(
    description="Check every record, architecture, weight and name in a run directory; all problems at once.",
    example="aiperf verify runs/first",
    configure=_configure_verify,
    execute=_verify,
)
