"""The second half of `aiperf screen --html`: the page of a screening."""

import argparse
from pathlib import Path

from aiperf.cli.command import Command, write_output
from aiperf.errors import EXIT_DONE
from aiperf.screening.outcome import Outcome, kinds_of, measured_in, read_outcome
from analysis.output.figures.screening import heat_maps
from analysis.output.page import vocabulary as words
from analysis.output.pages import render


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("screening", type=Path, metavar="DIR", help="folder of the screening")
    parser.add_argument("--html", type=Path, required=True, metavar="FILE", help="the page")


def _execute(arguments: argparse.Namespace) -> int:
    write_output(arguments.html, screening_page(read_outcome(arguments.screening)))
    return EXIT_DONE


def screening_page(outcome: Outcome) -> str:
    """The page of a screening, as one file."""
    worst = dict.fromkeys(item.node for item in outcome.bad)
    names = [*worst, *(name for name in outcome.bad_nodes if name not in worst)]
    last = measured_in(outcome.nodes, outcome.passes - 1)
    return render(
        "screening.html",
        outcome=outcome,
        found=[(name, outcome.reasons(name)) for name in names],
        hosts=" ".join(outcome.hosts),
        lost=sum(node.lost is not None for node in outcome.nodes),
        devices=len({(item.node, item.row.device) for item in last if item.row.value is not None}),
        kinds=kinds_of(outcome),
        drawings=heat_maps(outcome),
        words=words,
    )


REPORT_SCREENING = Command(
    description="Write the page of a screening.",
    example="aiperf report-screening screened --html screened/screen.html",
    configure=_configure,
    execute=_execute,
)
