"""The verb `aiperf dashboard`."""

import argparse
import asyncio
from pathlib import Path

from aiperf.cli.command import RUNS, Command, whole_number
from aiperf.cli.lines import say
from aiperf.errors import EXIT_DONE
from dashboard.runs import Runs


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directories",
        nargs="*",
        type=Path,
        default=[RUNS],
        metavar="DIR",
        help="a run, or a directory of runs (default: runs)",
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--port", type=whole_number(0), default=0, help="port of the loopback interface (default: any free one)"
    )
    place.add_argument("--socket", type=Path, metavar="PATH", help="listen in the file system instead, for you alone")


def _dashboard(arguments: argparse.Namespace) -> int:
    from dashboard.server import serve  # noqa: PLC0415  # the help does not need it

    asyncio.run(serve(Runs(arguments.directories), arguments.port, arguments.socket, _announce))
    return EXIT_DONE


def _announce(address: str, tunnel: str) -> None:
    say(address)
    print(f"from another machine: {tunnel}, then open the address there; Ctrl-C ends the dashboard", flush=True)  # noqa: T201


DASHBOARD = Command(
    description="Show runs live in a browser, running or finished: their list, and the report of each. Writes nothing.",
    example="aiperf dashboard runs/first --port 8080",
    configure=_configure,
    execute=_dashboard,
)
