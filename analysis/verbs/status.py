"""The verb `aiperf status`, which starts fast.

What reads records is imported only if there is neither a snapshot nor a status that a report kept.
"""

import argparse
import shlex
from pathlib import Path

from rich.table import Table

from aiperf.cli.command import Command, add_format, add_run
from aiperf.cli.console import open_console
from aiperf.cli.lines import say_json
from aiperf.cli.tables import MOST_NAMED, MOST_ROWS, make_table, print_line
from aiperf.cli.units import count, number, percent, si
from aiperf.clock import SystemClock
from aiperf.config.duration import format_duration
from aiperf.errors import EXIT_DONE, RunDirectoryError
from aiperf.run_directory.paths import RunPaths, open_run
from aiperf.run_directory.state import IN_PROGRESS
from aiperf.storage.patience import with_patience
from analysis.results.glance import RunStatus, error_text, models_text, status_at_a_glance


def _configure(parser: argparse.ArgumentParser) -> None:
    add_run(parser, metavar="DIR|ARCHIVE")
    add_format(parser)


def _status(arguments: argparse.Namespace) -> int:
    now_ms = SystemClock().utc_ms()
    status = status_at_a_glance(RunPaths(arguments.run), now_ms) or _by_records(arguments.run, now_ms)
    if arguments.format == "json":
        say_json(status.model_dump_json(indent=2))
        return EXIT_DONE
    console = open_console()
    print_line(console, _status_line(status))
    console.print(_status_table(status))
    for text in (status.slow or ())[:MOST_NAMED]:
        print_line(console, f"slow: {text}")
    return EXIT_DONE


def _by_records(run: Path, now_ms: int) -> RunStatus:
    """The status of a run, or of that in an archive, which has no primary."""
    if not with_patience(run.exists, run):
        raise RunDirectoryError(
            f"{run} is not there; a run in a job makes it when the job starts: ask the scheduler (squeue --me, qstat, "
            "bjobs), and see what there is: aiperf dashboard"
        )
    from analysis.report.build import build_report  # noqa: PLC0415
    from analysis.report.state import read_now  # noqa: PLC0415
    from analysis.results.source import opened_run, read_result_data  # noqa: PLC0415
    from analysis.results.status import run_status  # noqa: PLC0415

    with opened_run(run) as folder:
        paths = open_run(folder)
        if folder == run:
            data, state, holder = read_now(paths, now_ms)
            return run_status(data, build_report(data, state), holder, now_ms)
        data, _ = read_result_data(paths, unpacked=True)
        found = run_status(data, build_report(data), None, now_ms)
        return found.model_copy(update={"next": f"aiperf check {shlex.quote(str(run))}"})


def _status_line(status: RunStatus) -> str:
    """The whole run in one line, with the command to type if it does not run."""
    score = si(status.score_ops, "OPS")
    if status.score_ops is None:
        score = "no score yet" if status.state in IN_PROGRESS else "score invalid"
    so_far = " so far" if status.state in IN_PROGRESS and status.score_ops is not None else ""
    passed = f"{status.elapsed_s:.0f} of {status.duration_s:.0f} s"
    if status.state in IN_PROGRESS and status.left_s is not None:
        passed += f" ({format_duration(round(status.left_s))} left)"
    quality = error_text(status)
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
            state = f"ended: {status.ended}" + _simulated(status) + _reason(status)
    return f"run {status.name!r}: {state}; {passed}; {results}"


def _simulated(status: RunStatus) -> str:
    return " (simulated: nothing is trained)" if status.simulated else ""


def _reason(status: RunStatus) -> str:
    none_left = all(each.state in ("lost", "absent") for each in status.replicas)
    return " (no replica was left)" if status.ended == "no_replicas" or (status.replicas and none_left) else ""


def _status_table(status: RunStatus) -> Table:
    of_science = status.models is not None
    own = ("workload", "phase", "epoch", "quality") if of_science else ("round", "phase", "epoch", "accuracy")
    shares = {
        "input": [each.input_share for each in status.replicas],
        "all-reduce": [each.all_reduce_share for each in status.replicas],
        "servers": [each.servers_share for each in status.replicas],
    }
    measured = {name: found for name, found in shares.items() if any(share is not None for share in found)}
    table = make_table(
        None,
        "replica",
        "node",
        "state",
        "trial",
        *own,
        "operations",
        "rate",
        *measured,
        left=("state", "phase", "workload", "node"),
        dropped=("trial", own[0], "epoch", "operations"),
    )
    for place, replica in enumerate(status.replicas[:MOST_ROWS]):
        what = replica.workload if of_science else replica.round
        facts = (replica.trial, what, replica.phase, replica.epochs)
        table.add_row(
            str(replica.replica),
            replica.node or "-",
            replica.state,
            *("-" if fact is None else str(fact) for fact in facts),
            number(replica.quality if of_science else replica.accuracy),
            si(replica.operations, "OP"),
            si(replica.working_ops, "OPS"),
            *(percent(found[place]) for found in measured.values()),
        )
    if len(status.replicas) > MOST_ROWS:
        table.caption = f"and {len(status.replicas) - MOST_ROWS} more; --format json has all"
    return table


STATUS = Command(
    description="Show the state of a running or finished run, from any shell. Writes nothing.",
    example="aiperf status runs/first",
    configure=_configure,
    execute=_status,
)
