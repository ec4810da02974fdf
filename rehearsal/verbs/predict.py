"""`aiperf predict`: the score of a planned cluster."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from aiperf.cli.command import Command, add_format, whole_number, write_output
from aiperf.cli.console import open_console
from aiperf.cli.lines import say_json, warn
from aiperf.cli.tables import make_table
from aiperf.cli.units import interval, number, percent, si
from aiperf.errors import EXIT_DONE
from analysis.output.pictures import save_drawing
from rehearsal.figure import prediction_chart
from rehearsal.machine.from_measurements import text_of
from rehearsal.prediction import LARGEST_REHEARSED, Band, Predicted, PredictedGroups, predict
from rehearsal.verbs.options import add_rehearsal_options, read_rehearsal

DEFAULT_SEEDS = 3


def _configure(parser: argparse.ArgumentParser) -> None:
    add_rehearsal_options(parser)
    parser.add_argument(
        "--seeds",
        type=whole_number(1),
        default=DEFAULT_SEEDS,
        metavar="N",
        help=f"rehearsals of each size, for the band (default: {DEFAULT_SEEDS})",
    )
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="also write the figure, the JSON and the machine file"
    )
    add_format(parser)


def _execute(arguments: argparse.Namespace) -> int:
    rehearsal = read_rehearsal(arguments)
    rows = predict(rehearsal, arguments.seeds)
    text = json.dumps([asdict(row) for row in rows], indent=2)
    if arguments.output is not None:
        write_output(arguments.output / "prediction.json", text + "\n")
        write_output(arguments.output / "machine.toml", text_of(rehearsal.machine))
        drawing = prediction_chart(rows, rehearsal.machine.machine.name)
        save_drawing(arguments.output, drawing)
        warn(
            f"figure, numbers and machine are in {arguments.output}: {drawing.name}.svg, prediction.json, machine.toml"
        )
    if arguments.format == "json":
        say_json(text)
        return EXIT_DONE
    _print(rows, rehearsal.machine.machine.name)
    return EXIT_DONE


def _print(rows: Sequence[Predicted], name: str) -> None:
    regulated = ("regulated score", "95 % of runs", "error") if rows[-1].error is not None else ()
    table = make_table(
        f"Predicted for {name}", "replicas", "score", "95 % of runs", *regulated, "efficiency", "from", left=("from",)
    )
    for row in rows:
        own: tuple[str, ...] = ()
        if row.regulated_score_ops is not None and row.error is not None:
            own = (*_ops(row.regulated_score_ops), number(row.error.value))
        table.add_row(str(row.replicas), *_ops(row.score_ops), *own, percent(row.efficiency.value), _source(row))
    open_console().print(table)
    limit = rows[-1].first_limit
    ranges = "no ranges from one seed" if rows[-1].score_ops.low is None else "ranges hold in 95 of 100 cases"
    warn(f"sizes beyond {LARGEST_REHEARSED} replicas are extrapolated; {ranges}")
    if any(row.efficiency.value > 1.0 for row in rows):
        warn(
            "an efficiency above 100 %: more replicas find larger networks earlier, of which steps, input and starts "
            "cost a smaller share of the time"
        )
    if (exchange := rows[-1].exchange) is not None:
        warn(_groups_in_words(exchange))
    warn(f"first limit: {limit.what}, at about {limit.replicas:,} replicas")


def _groups_in_words(part: PredictedGroups) -> str:
    """The exchange of groups and servers, in a sentence."""
    more = "" if part.saturated_groups is None else f", and has no time left with {part.saturated_groups:,} groups"
    return (
        f"groups: {part.groups}, staleness {number(part.staleness.value, 2)} (at most {part.largest_staleness}), "
        f"{percent(part.group_share.value)} of their time in all-reduce, broadcast and waits for slower ranks, "
        f"{percent(part.waiting_share.value)} waiting for servers; server {part.busiest_server} has the most to do: it "
        f"is busy {percent(part.busy_share.value)} of the time{more}"
    )


def _source(row: Predicted) -> str:
    if row.rehearsed:
        return "rehearsal"
    beyond = ", beyond its first limit" if row.replicas > row.first_limit.replicas else ""
    return f"extrapolation{beyond}"


def _ops(band: Band) -> tuple[str, str]:
    return si(band.value, "OPS"), interval(band.low, band.high, "OPS")


PREDICT = Command(
    description="Predict score, regulated score and efficiency of a planned cluster for 1, 2, 4, ... replicas, and "
    "what gives way first, from rehearsals with several seeds.",
    example="aiperf predict --machine h100-8x8 --replicas 64 --duration 2h",
    configure=_configure,
    execute=_execute,
)
