"""The verbs for one run: `aiperf report`, `aiperf status` and `aiperf verify`."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

from rich.table import Table

from aiperf.cli.command import Command, add_format, add_no_page, add_run
from aiperf.cli.console import open_console
from aiperf.cli.lines import say, say_json, warn
from aiperf.cli.units import count, number, si
from aiperf.clock import SystemClock
from aiperf.config.duration import format_duration
from aiperf.errors import EXIT_DONE, EXIT_FAILED, EnvironmentNotReadyError, UsageError
from aiperf.run_directory.measured import read_rows
from aiperf.run_directory.paths import RunPaths, open_run
from aiperf.storage.patience import PATIENCE
from analysis.output.tables import MOST_NAMED, MOST_ROWS, make_table, print_line, print_report
from analysis.reading.run_data import RunData
from analysis.reading.workers import no_garbage_collection
from analysis.report.build import build_report
from analysis.report.state import IN_PROGRESS, OVER, State, next_command, read_now, seconds_left
from analysis.results.archive import OWN_FILES, is_archive
from analysis.results.source import opened_run, read_result_data
from analysis.results.status import RunStatus, models_text, run_status, status_at_a_glance
from analysis.results.verify import notes_of, verify

PATIENCE_S = 10.0
"""Longest wait for each file of a report; the result is printed without them."""


def _configure(parser: argparse.ArgumentParser) -> None:
    add_run(parser, metavar="DIR|ARCHIVE")
    add_format(parser)


def _configure_report(parser: argparse.ArgumentParser) -> None:
    _configure(parser)
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="folder for the files (default: DIR/report)")
    add_no_page(parser)
    parser.add_argument("--micro", type=Path, metavar="FILE",
                        help="ceilings of such nodes, as 'aiperf micro --output FILE' writes them")  # fmt: skip


def _report(arguments: argparse.Namespace) -> int:
    if arguments.output is None and is_archive(arguments.run):
        raise UsageError(f"{arguments.run} is an archive, which stays as it is: name a folder for its report, --output")
    if arguments.micro is not None and arguments.output is None:
        raise UsageError("--micro needs --output: the report in the run directory is made from the run alone")
    with opened_run(arguments.run) as folder:
        return _report_of(arguments, open_run(folder))


def _report_of(arguments: argparse.Namespace, paths: RunPaths) -> int:
    micro = () if arguments.micro is None else read_rows(arguments.micro)
    with no_garbage_collection():
        data, state = read_result_data(paths, unpacked=paths.root != arguments.run)
        report = build_report(data, state, micro=micro)
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
    return [first, f"open the page in a browser: {page.absolute().as_uri()}"]


def _status(arguments: argparse.Namespace) -> int:
    now_ms = SystemClock().utc_ms()
    with opened_run(arguments.run) as folder:
        paths = open_run(folder)
        if folder == arguments.run:
            status = status_at_a_glance(paths, now_ms) or _status_by_records(paths, now_ms)
        else:
            data, _ = read_result_data(paths, unpacked=True)
            status = run_status(data, build_report(data), None, now_ms)
            status = status.model_copy(update={"next": f"aiperf check {shlex.quote(str(arguments.run))}"})
    if arguments.format == "json":
        say_json(status.model_dump_json(indent=2))
        return EXIT_DONE
    console = open_console()
    print_line(console, _status_line(status))
    console.print(_status_table(status))
    for text in (status.slow or ())[:MOST_NAMED]:
        print_line(console, f"slow: {text}")
    return EXIT_DONE


def _status_by_records(paths: RunPaths, now_ms: int) -> RunStatus:
    data, state, holder = read_now(paths, now_ms)
    return run_status(data, build_report(data, state), holder, now_ms)


def _status_line(status: RunStatus) -> str:
    """The whole run in one line, with the command to type if it does not run."""
    score = si(status.score_ops, "OPS")
    if status.score_ops is None:
        score = "no score yet" if status.state in IN_PROGRESS else "score invalid"
    so_far = " so far" if status.state in IN_PROGRESS and status.score_ops is not None else ""
    passed = f"{status.elapsed_s:.0f} of {status.duration_s:.0f} s"
    quality = f"error {status.error:.4f}"
    if status.models is not None:
        quality = models_text(status)
    results = f"{count(status.trials, 'trial')}; {quality}; {score}{so_far}"
    dead = f": its primary ({status.primary}) died" if status.primary and status.ended is None else ""
    match status.state:
        case "starting":
            waits = "; ".join(status.waits_for)
            return f"run {status.name!r}: waiting for {waits or 'its replicas'}"
        case "running":
            state = "running" + _simulated(status)
        case "silent":
            state = f"running, but its primary ({status.primary}) gives no sign of life; if it is dead: {status.next}"
        case "interrupted":
            state = f"interrupted{_reason(status)}{dead}; resume it with: {status.next}"
        case "failed" if status.ended != "no_replicas":
            state = f"failed: interrupted{dead}; its deadline has passed"
        case "failed":
            state = "failed: no replica was left"
        case _:
            state = f"ended: {status.ended}"
    return f"run {status.name!r}: {state}; {passed}; {results}"


def _simulated(status: RunStatus) -> str:
    return " (simulated: nothing is trained)" if status.simulated else ""


def _reason(status: RunStatus) -> str:
    return " (no replica was left)" if status.ended == "no_replicas" else ""


def _status_table(status: RunStatus) -> Table:
    of_science = status.models is not None
    own = ("workload", "phase", "epoch", "quality") if of_science else ("round", "phase", "epoch", "accuracy")
    table = make_table(
        None, "replica", "node", "state", "trial", *own, "operations", "rate",
        left=("state", "phase", "workload", "node"), dropped=("trial", own[0], "epoch", "operations"),
    )  # fmt: skip
    for replica in status.replicas[:MOST_ROWS]:
        what = replica.workload if of_science else replica.round
        facts = (replica.trial, what, replica.phase, replica.epochs)
        table.add_row(
            str(replica.replica), replica.node or "-", replica.state,
            *("-" if fact is None else str(fact) for fact in facts),
            number(replica.quality if of_science else replica.accuracy), si(replica.operations, "OP"),
            si(replica.working_ops, "OPS"),
        )  # fmt: skip
    if len(status.replicas) > MOST_ROWS:
        table.caption = f"and {len(status.replicas) - MOST_ROWS} more; --format json has all"
    return table


REPORT = Command(
    description="Recompute a run from its raw records; writes a page, JSON, CSV tables and figures to DIR/report.",
    example="aiperf report runs/first --format json",
    configure=_configure_report,
    execute=_report,
    leaves=lambda arguments: f"the records are whole; again: aiperf report {shlex.quote(str(arguments.run))}",
)

STATUS = Command(
    description="Show the state of a running or finished run, from any shell. Writes nothing.",
    example="aiperf status runs/first",
    configure=_configure,
    execute=_status,
)


def _configure_verify(parser: argparse.ArgumentParser) -> None:
    add_run(parser, metavar="DIR|ARCHIVE")
    add_format(parser)


def _verify(arguments: argparse.Namespace) -> int:
    with opened_run(arguments.run) as folder:
        paths = open_run(folder)
        problems, notes = verify(paths, OWN_FILES if folder != arguments.run else ()), notes_of(paths)
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
