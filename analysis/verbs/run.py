"""The verbs for one run: `aiperf report`, `aiperf status` and `aiperf verify`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.table import Table

from aiperf.cli.command import Command, add_format, add_run
from aiperf.cli.console import open_console
from aiperf.clock import SystemClock
from aiperf.errors import EXIT_DONE, EXIT_FAILED
from aiperf.history.ledger import when
from aiperf.run_directory.paths import open_run
from analysis.output.tables import make_table, print_line, print_report
from analysis.reading.run_data import RunData, read_run
from analysis.report.build import build_report
from analysis.report.model import Report
from analysis.results.verify import verify


def _configure(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_format(parser)


def _configure_report(parser: argparse.ArgumentParser) -> None:
    _configure(parser)
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="folder for the files (default: DIR/report)")


def _report(arguments: argparse.Namespace) -> int:
    from analysis.output.artifacts import write_report  # noqa: PLC0415  # draws figures: takes a second to import

    paths = open_run(arguments.run)
    data = read_run(paths)
    report = build_report(data)
    page = write_report(arguments.output or paths.report, data, report)
    if arguments.format == "json":
        print(report.model_dump_json(indent=2))  # noqa: T201
        # Standard output is for the document alone.
        print(report.final_line, file=sys.stderr)  # noqa: T201
    else:
        print_report(report, page)
    return EXIT_DONE


def _status(arguments: argparse.Namespace) -> int:
    data = read_run(open_run(arguments.run), now_ms=SystemClock().utc_ms())
    report = build_report(data, so_far=True)
    if arguments.format == "json":
        print(report.model_dump_json(indent=2))  # noqa: T201
        return EXIT_DONE
    console = open_console()
    print_line(console, _status_line(data, report))
    console.print(_status_table(data, report))
    return EXIT_DONE


def _status_line(data: RunData, report: Report) -> str:
    planned_s = data.manifest.config.run.duration
    if data.start_ms is None:
        state = "waiting for its replicas" if data.ended == "unfinished" else f"ended before its start: {data.ended}"
        return f"run {report.name!r}: {state}"
    state = "running (or its primary is gone)" if data.ended == "unfinished" else f"ended: {data.ended}"
    return (
        f"run {report.name!r}: {state}; {report.duration_s:.0f} of {planned_s:.0f} s; "
        f"{len(report.trials)} trials; error {report.error:.4f}; {_score(data, report)}"
    )


def _score(data: RunData, report: Report) -> str:
    if report.score_ops is None:
        return "score invalid"
    return f"{report.score_ops:.4e} OPS{' so far' if data.ended == 'unfinished' else ''}"


def _status_table(data: RunData, report: Report) -> Table:
    table = make_table(
        None, "replica", "state", "trial", "round", "phase", "epoch", "accuracy", "operations", left=("state", "phase")
    )
    for replica in report.replica_details:
        trials = [trial for trial in report.trials if trial.replica == replica.replica]
        phases = data.ledger.replica(replica.replica).phases.values()
        last_phase = max((item for items in phases for item in items), key=when, default=None)
        phase = last_phase.body.phase if last_phase else "-"
        last = trials[-1] if trials else None
        accuracy = f"{last.best_accuracy:.4f}" if last and last.best_accuracy is not None else "-"
        table.add_row(
            str(replica.replica), replica.state, str(last.id if last else "-"), str(last.round if last else "-"),
            phase, str(last.epochs if last else "-"), accuracy, f"{replica.operations:.4e}",
        )  # fmt: skip
    return table


REPORT = Command(
    description="Recompute a run from its raw records; writes a page, JSON, CSV tables and figures to DIR/report.",
    example="aiperf report runs/first --format json",
    configure=_configure_report,
    execute=_report,
)

STATUS = Command(
    description="Show the state of a running or finished run, from any shell. Writes nothing.",
    example="aiperf status runs/first",
    configure=_configure,
    execute=_status,
)


def _configure_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="run directory")


def _verify(arguments: argparse.Namespace) -> int:
    problems = verify(open_run(arguments.directory))
    for problem in problems:
        print(problem)  # noqa: T201
    print(f"{arguments.directory}: {len(problems)} problem(s)")  # noqa: T201
    return EXIT_FAILED if problems else EXIT_DONE


VERIFY = Command(
    description="Check every record, architecture, weight and name in a run directory; all problems at once.",
    example="aiperf verify runs/first",
    configure=_configure_verify,
    execute=_verify,
)
