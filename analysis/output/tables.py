"""A report as tables for people."""

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.table import Table

from aiperf.cli.console import open_console
from aiperf.cli.lines import warn
from aiperf.cli.tables import MOST_NAMED, MOST_ROWS, make_table, print_line
from aiperf.cli.units import interval, number, percent, si
from aiperf.config.duration import format_duration
from aiperf.run_directory.state import IN_PROGRESS
from aiperf.untrusted.text import cut
from analysis.output.page.hybrid import group_rows, server_rows, training_rows
from analysis.output.page.science import LEFT, currency_of, filled, model_rows, result_rows, split
from analysis.output.page.vocabulary import TRIAL_STATES, assumptions, cost, goodput, known, slowness
from analysis.report.model import ReplicaPart, Report
from analysis.report.phases import WAITS, measured_waits, share_of_training, worst_first
from analysis.report.roofline.parts import RooflinePart
from analysis.report.trials import most_accurate


def print_report(report: Report, page: Path | None, advice: Iterable[str] = ()) -> None:
    """Print trials, replicas, violations, the page's path if it is there, the final line.

    `advice` goes to standard error before the final line, which is the last one of a log of both.
    """
    console = open_console()
    for table in _workloads(report) if report.is_science else (_trials(report),):
        console.print(table)
    if report.hyperparameters:
        console.print(_hyperparameters(report))
    console.print(_replicas(report))
    if report.sustained_ops is not None:
        console.print(_rates(report))
    for table in _hybrid(report):
        console.print(table)
    if report.statistics is not None:
        console.print(_statistics(report))
    if report.roofline is not None and report.roofline.ceilings:
        console.print(_ceilings(report.roofline))
    hidden = max(0, len(report.trials) - MOST_ROWS), max(0, len(report.replica_details) - MOST_ROWS)
    if any(hidden):
        console.print(f"not shown: {hidden[0]} trials of lower accuracy, {hidden[1]} replicas; the CSV tables have all")
    if page is not None:
        print_line(console, f"report: {page}")
    *reasons, final = closing_lines(report)
    for line in reasons:
        print_line(console, line)
    console.file.flush()
    with contextlib.suppress(OSError):  # a terminal that was closed does not hurt
        warn(*(f"next: {line}" for line in advice))
    print_line(console, final)


def closing_lines(report: Report) -> Iterator[str]:
    """Yield assumptions, notices, damage, each rule that is not met, and the stable final line."""
    if report.assumed is not None:
        yield f"nothing was trained: {assumptions(report.assumed)}"
    if report.state in IN_PROGRESS:
        yield f"{report.state}: this is the run so far; it has no verdict before its end"
    if report.goodput is not None and report.started is not None:
        yield f"goodput: {goodput(report.goodput)}"
    if report.cost is not None:
        yield f"cost: {cost(report.cost)}"
    for notice in report.notices:
        yield f"notice: {notice}"
    yield from slow_lines(report)
    for damage in report.damages[:MOST_NAMED]:
        yield f"damaged record: {damage}"
    if len(report.damages) > MOST_NAMED:
        yield f"damaged records: {len(report.damages) - MOST_NAMED} more; aiperf verify names all"
    for violation in report.violations:
        broken = "rule that its settings break" if report.state in IN_PROGRESS else "rule not met"
        yield f"{broken}: {violation.rule}: found {cut(violation.found)}; required {violation.required}"
    yield from why_lines(report)
    yield report.final_line


def slow_lines(report: Report) -> Iterator[str]:
    """The slow replicas, the slowest first, with what differs."""
    slow = report.comparison.slow if report.comparison is not None else ()
    for part in slow[:MOST_NAMED]:
        yield f"slow: {slowness(part)}"
    if len(slow) > MOST_NAMED:
        yield f"slow: and {len(slow) - MOST_NAMED} more; tables/effects.csv has all"


def why_lines(report: Report) -> Iterator[str]:
    """The replicas that are lost at the end, by cause, each whole and with its nodes."""
    causes: dict[str, list[ReplicaPart]] = defaultdict(list)
    for replica in report.replica_details:
        if replica.state == "lost":
            causes[" ".join((replica.reason or "no reason was recorded").split())].append(replica)
    for reason, lost in sorted(causes.items(), key=lambda item: -len(item[1])):
        names = ", ".join(str(part.replica) for part in lost[:MOST_NAMED]) + ", ..." * (len(lost) > MOST_NAMED)
        nodes = sorted({part.node for part in lost if part.node})
        where = f" ({', '.join(nodes[:MOST_NAMED])})" if nodes else ""
        which = f"replica{'s' if len(lost) > 1 else ''} {names}{where}"
        yield f"why: {len(lost)} of {report.replicas} replicas lost: {which}: {reason}"


def _workloads(report: Report) -> Iterator[Table]:
    """The results of the workloads, then the models of each."""
    to_quality, rates = split(result_rows(report), "workload")
    yield _shown("Workloads: what the target took, medians of the models", filled(to_quality))
    yield _shown("Rates", filled(rates))
    for part in report.workloads:
        if part.models:
            to_quality, _ = split(model_rows(part, currency_of(report))[:MOST_ROWS], "model")
            yield _shown(f"Models of {part.workload}", filled(to_quality))


def _hybrid(report: Report) -> Iterator[Table]:
    """Trainings, groups and servers of hybrid training; none if trainings were synchronous."""
    if report.hybrid is None:
        return
    yield _shown("Hybrid training", training_rows(report.hybrid)[:MOST_ROWS])
    yield _shown("Groups", group_rows(report.hybrid)[:MOST_ROWS])
    yield _shown("Parameter servers", server_rows(report.hybrid)[:MOST_ROWS])


def _shown(title: str, rows: list[dict[str, str]]) -> Table:
    table = make_table(title, *(rows[0] if rows else ()), left=LEFT)
    for row in rows:
        table.add_row(*row.values())
    return table


def _trials(report: Report) -> Table:
    table = make_table(
        "Trials",
        "trial",
        "replica",
        "round",
        "architecture",
        "epochs",
        "accuracy",
        "operations",
        "state",
        left=("architecture", "state"),
    )
    for trial in most_accurate(report.trials, MOST_ROWS):
        reason = f": {trial.failure_reason}" if trial.failure_reason else ""
        point = f".{trial.point}" if trial.point else ""
        table.add_row(
            str(trial.id),
            str(trial.replica),
            f"{trial.round}{point}",
            trial.architecture or "-",
            str(trial.epochs),
            number(trial.best_accuracy),
            si(trial.operations, "OP"),
            f"{TRIAL_STATES.get(trial.state, trial.state)}{reason}"[:200],
        )
    return table


def _hyperparameters(report: Report) -> Table:
    table = make_table(
        "Hyperparameters: points tried by the tuner",
        "hyperparameter",
        "value",
        "points",
        "mean accuracy",
        "best accuracy",
        left=("hyperparameter",),
    )
    for part in report.hyperparameters:
        table.add_row(
            part.name, str(part.value), str(part.points), number(part.mean_accuracy), number(part.best_accuracy)
        )
    return table


def _rates(report: Report) -> Table:
    """Peak and sustained rate apart, next to the score."""
    table = make_table("Rates of the run", "rate", "OPS", "mean over", left=("rate", "mean over"))
    table.add_row("peak", si(report.peak_ops, "OPS"), "the best ten progress intervals")
    table.add_row("sustained", si(report.sustained_ops, "OPS"), "first training step to last record of work")
    table.add_row("score", si(report.score_ops, "OPS"), "the whole run")
    return table


def _statistics(report: Report) -> Table:
    found = report.statistics
    assert found is not None
    table = make_table("Statistics", "measure", "value", "95 % interval", left=("measure",))
    parts = (
        ("score", found.score_ops, "OPS"),
        ("regulated score", found.regulated_score_ops, "OPS"),
        ("error", found.error, ""),
    )
    for name, part, unit in parts:
        if part is not None:
            table.add_row(
                name, si(part.value, unit) if unit else number(part.value), interval(part.low, part.high, unit)
            )
    table.add_row("OPS of a replica on the initial architecture", si(found.initial_ops, "OPS"), "")
    table.add_row("mean growth, weighted by operations", number(found.mean_growth, 3), "")
    table.add_row("OPS of the second half / the first", number(found.second_half, 3), "")
    for device in report.physics.devices if report.physics is not None else ():
        share = f"{percent(device.share_of_peak)} of {device.devices} x {si(device.peak_ops, 'OPS')}"
        table.add_row(f"OPS on {device.name}", si(device.ops, "OPS"), share if device.share_of_peak is not None else "")
    return table


def _ceilings(part: RooflinePart) -> Table:
    table = make_table(
        "What the machine can do (micro suite)",
        "device",
        "precision",
        "nodes",
        "gemm",
        "triad",
        left=("device", "precision"),
    )
    for ceiling in part.ceilings:
        device = ceiling.device if ceiling.cpus is None else f"{ceiling.device}, {ceiling.cpus} CPUs"
        table.add_row(
            device,
            f"{ceiling.precision} ({ceiling.stack})",
            str(ceiling.nodes),
            si(ceiling.gemm_ops, "OPS"),
            ("at most " if ceiling.upper_bound else "") + si(ceiling.triad_bytes_per_s, "B/s"),
        )
    table.add_row("score / gemm of all devices", "", "", known(part.score_share), "")
    table.add_row("share of the ceiling", "", "", known(part.share_of_ceiling), "")
    return table


def _replicas(report: Report) -> Table:
    phases = list(dict.fromkeys(phase for replica in report.replica_details for phase in replica.phases_s))
    waits = measured_waits(report.replica_details)
    names = [WAITS[wait] for wait in waits]
    order = ("trials", *reversed(phases), "operations", *reversed(names))
    table = make_table(
        "Replicas, worst first",
        "replica",
        "node",
        "state",
        "rate",
        *names,
        "trials",
        "operations",
        *phases,
        left=("state", "node"),
        dropped=order,
    )
    for replica in worst_first(report.replica_details)[:MOST_ROWS]:
        reason = f": {replica.reason}" if replica.reason else ""
        table.add_row(
            str(replica.replica),
            replica.node or "-",
            f"{replica.state}{reason}"[:200],
            si(replica.working_ops, "OPS"),
            *(percent(share_of_training([replica], wait)) for wait in waits),
            str(replica.trials),
            si(replica.operations, "OP"),
            *(format_duration(replica.phases_s.get(phase, 0.0)) for phase in phases),
        )
    return table
