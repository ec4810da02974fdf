"""The verb `aiperf screen`: which node is bad, before a run."""

import argparse
from pathlib import Path

from aiperf.cli.command import Command, add_format, duration, write_output
from aiperf.cli.console import open_console
from aiperf.cli.lines import say, say_json, warn
from aiperf.cli.run_options import add_run_options, read_run_options
from aiperf.clock import SystemClock
from aiperf.errors import EXIT_DONE, EXIT_REJECTED, EnvironmentNotReadyError, UsageError
from aiperf.files import make_folder
from aiperf.screening.baseline import read_baseline, write_baseline
from aiperf.screening.judgement import LOWER_SHARE
from aiperf.screening.outcome import FILE, NAMES, Outcome, write_outcome
from primary.screening.screen import Order, screen
from primary.screening.text import lines_to_paste, print_outcome

TIME_LIMIT_S = 900.0
MOST_PERCENT = 90


def _configure(parser: argparse.ArgumentParser) -> None:
    add_run_options(parser)
    parser.add_argument("--quick", action="store_true", help="shorter blocks, and no training steps")
    parser.add_argument(
        "--fabric", action="store_true", help="also the network: pairs of nodes, all nodes, within nodes"
    )
    parser.add_argument("--storage", action="store_true", help="also the file systems of data set and run directory")
    parser.add_argument(
        "--devices",
        default="",
        metavar="LIST",
        help="devices to measure, such as cpu,gpu0 (default: all of every node)",
    )
    parser.add_argument(
        "--below",
        type=_percent,
        default=LOWER_SHARE * 100,
        metavar="PERCENT",
        help="a device this far below the median of its equals may be bad (default: %(default)g)",
    )
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="floors that no device may be below")
    parser.add_argument("--write-baseline", type=Path, metavar="FILE", help="write floors from this screening")
    parser.add_argument("--output", type=Path, metavar="DIR", help=f"folder for {FILE} and {NAMES}")
    parser.add_argument("--html", type=Path, metavar="FILE", help="page with heat maps; needs --output")
    parser.add_argument(
        "--time-limit",
        type=duration,
        default=TIME_LIMIT_S,
        metavar="TIME",
        help="longest wait for a node to start, and for each pass (default: 15m)",
    )
    add_format(parser)


def _percent(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number <= MOST_PERCENT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage above 0 and up to {MOST_PERCENT}")
    return number


def _execute(arguments: argparse.Namespace) -> int:
    config = read_run_options(arguments)
    floors = read_baseline(arguments.baseline) if arguments.baseline is not None else {}
    if arguments.write_baseline is not None and arguments.write_baseline.exists():
        raise UsageError(f"{arguments.write_baseline} exists: people review baselines; name another file")
    if arguments.html is not None and arguments.output is None:
        raise UsageError(f"--html: name the folder of its {FILE}, too: --output DIR")
    if arguments.output is not None:
        _make(arguments.output)
    order = Order(
        config,
        arguments.output or Path(),
        arguments.time_limit,
        arguments.quick,
        tuple(name for name in arguments.devices.split(",") if name),
        arguments.below / 100,
        floors,
        arguments.fabric,
        arguments.storage,
    )
    outcome = screen(order, SystemClock(), lambda text: warn(f"aiperf: {text}"))
    if arguments.output is not None:
        write_output(arguments.output / FILE, write_outcome(outcome))
        write_output(arguments.output / NAMES, "".join(f"{host}\n" for host in outcome.hosts))
    if arguments.write_baseline is not None:
        write_output(arguments.write_baseline, write_baseline(outcome))
    _print(outcome, arguments.format)
    return EXIT_REJECTED if outcome.bad_nodes else EXIT_DONE


def _make(folder: Path) -> None:
    try:
        make_folder(folder)
    except OSError as error:
        raise EnvironmentNotReadyError([f"{folder} cannot be made: {error}"]) from error


def _print(outcome: Outcome, form: str) -> None:
    if form == "json":
        say_json(write_outcome(outcome).rstrip("\n"))
        return
    print_outcome(open_console(), outcome)
    say(*lines_to_paste(outcome))


def _page(arguments: argparse.Namespace) -> list[str]:
    return ["report-screening", str(arguments.output), "--html", str(arguments.html)] if arguments.html else []


SCREEN = Command(
    description="Measure every device of every node, all at once, and name the nodes that are slower than others.",
    example='aiperf screen --launcher ssh --replicas 4 --set \'ssh.hosts=["n0", "n1", "n2", "n3"]\' --quick',
    configure=_configure,
    execute=_execute,
    follow_up=_page,
    leaves=lambda _: "the nodes were left as they were",
)
