"""The verb `aiperf scale`: starts the runs of a series; the analysis then draws them."""

import argparse
import sys
from pathlib import Path
from typing import get_args

from aiperf.cli.command import Command, add_format, output_options
from aiperf.cli.run_options import add_run_options, read_run_options, words_of
from aiperf.errors import EXIT_DONE, UsageError
from primary.background.outputs import ignore_hangups, replace_dead_outputs
from primary.scaling.runs import SAME_COMMAND, Batch, Growth, Kind, Mode, run_series

DRAWING_VERB = "report-scaling"
"""The verb that reads the finished runs; it is not in the help."""


def _configure(parser: argparse.ArgumentParser) -> None:
    add_run_options(parser)
    parser.add_argument(
        "--counts", default="1,2,4", metavar="N,N,...", help="numbers of replicas, or of ranks (default: %(default)s)"
    )
    parser.add_argument(
        "--mode",
        choices=get_args(Mode),
        default="weak",
        help="weak: the work grows with the machine; strong: the work stays (default: %(default)s)",
    )
    parser.add_argument(
        "--grow",
        choices=get_args(Kind),
        default="replicas",
        help="what the runs have more of: replicas, or ranks of each replica (default: %(default)s)",
    )
    parser.add_argument(
        "--batch",
        choices=get_args(Batch),
        help="what stays with more ranks: the batch of all together (default of --mode strong), or of one",
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="directory of the runs and the figure")
    parser.add_argument(
        "--from", nargs="+", type=Path, metavar="DIR", dest="finished", help="start nothing: draw these finished runs"
    )
    parser.add_argument(
        "--figure", type=Path, metavar="FOLDER", help="also draw score and use over time, and score by size, for papers"
    )
    add_format(parser, ("table", "json", "csv"))


def _execute(arguments: argparse.Namespace) -> int:
    if not arguments.finished:
        arguments.finished = _run(arguments)
    return EXIT_DONE


def _run(arguments: argparse.Namespace) -> list[Path]:
    if arguments.output is None:
        raise UsageError("name the directory of the series: --output DIR (or finished runs: --from DIR ...)")
    if arguments.replicas is not None:
        raise UsageError("use --counts for the numbers of replicas; --replicas does not apply to a series")
    config = read_run_options(arguments)
    growth = Growth.chosen(arguments.mode, arguments.grow, arguments.batch, config)
    members = [growth.member(count, config) for count in _counts(arguments.counts)]
    ignore_hangups()
    launcher = ["--launcher", arguments.launcher] if arguments.launcher else []
    # Only the result of the series belongs on standard output if a program reads it.
    output = None if arguments.format == "table" else sys.stderr
    try:
        return run_series(arguments.output, members, [*words_of(arguments), *launcher], output, growth.words)
    finally:
        replace_dead_outputs(arguments.output / "scale.out")


def _counts(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UsageError(f"--counts {text}: whole numbers above 0 with commas between them, such as 1,2,4")
    return sorted({int(word) for word in words})


def _follow_up(arguments: argparse.Namespace) -> list[str]:
    figure = ["--figure", str(arguments.figure)] if arguments.figure is not None else []
    options = ["--mode", arguments.mode, *figure, *output_options(arguments)]
    return [DRAWING_VERB, *options, "--", *map(str, arguments.finished)]


SCALE = Command(
    description="Scaling: one configuration with more and more replicas or ranks, one run after another; resumable.",
    example="aiperf scale --dataset digits --duration 5m --counts 1,2 --output runs/scaling",
    configure=_configure,
    execute=_execute,
    follow_up=_follow_up,
    leaves=lambda arguments: SAME_COMMAND,
)
