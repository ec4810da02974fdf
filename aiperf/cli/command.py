"""A verb of the command line, and the options and outputs that verbs share."""

import argparse
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiperf.cli.lines import warn
from aiperf.cli.verbs import FOLLOW_UPS, VERBS
from aiperf.config.duration import parse_duration
from aiperf.errors import EnvironmentNotReadyError
from aiperf.files import write_atomically
from aiperf.registry import uncollected

FORMATS = ("table", "json")


@dataclass(frozen=True, slots=True)
class Command:
    """A verb: its help, its options and its action.

    `follow_up` may give the words of a verb to run next, which may live in a room that this one
    must not import.
    """

    description: str
    example: str
    configure: Callable[[argparse.ArgumentParser], None]
    execute: Callable[[argparse.Namespace], int]
    follow_up: Callable[[argparse.Namespace], list[str]] = lambda arguments: []
    leaves: Callable[[argparse.Namespace], str] = lambda arguments: "nothing was changed"
    """State of things after Ctrl-C, and the command to type next."""


def load_command(verb: str) -> Command:
    """The command of a verb, imported now. Raises KeyError if there is no such verb."""
    module, _, name = (FOLLOW_UPS.get(verb) or VERBS[verb][0]).partition(":")
    with uncollected():
        command: Command = getattr(importlib.import_module(module), name)
    return command


def duration(text: str) -> float:
    """The type of an option that takes a duration, such as 90s or 15m: its seconds."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def whole_number(least: int) -> Callable[[str], int]:
    """The type of an option that takes a whole number from `least` on."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return number

    return parse


def help_of(about: str, example: str) -> dict[str, Any]:
    """Settings of the parser of a verb or its action that print a description and an example."""
    return {
        "description": about,
        "epilog": f"example:\n  {example}",
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }


def add_action(actions: Any, name: str, about: str, example: str) -> argparse.ArgumentParser:
    """Add the parser of an action of a verb, as that of `aiperf nodes list`.

    `about` is a sentence without capital and full stop.
    """
    words = help_of(f"{about[0].upper()}{about[1:]}.", example)
    parser: argparse.ArgumentParser = actions.add_parser(name, help=about, **words)
    add_debug(parser, default=argparse.SUPPRESS)
    return parser


def add_debug(parser: argparse.ArgumentParser, default: Any = False) -> None:
    """The option --debug.

    With argparse.SUPPRESS for an action: one that is not asked for it must not undo what its verb
    was asked for.
    """
    parser.add_argument("--debug", action="store_true", default=default, help="show tracebacks of errors")


def output_options(arguments: argparse.Namespace) -> list[str]:
    """The words of --format, --debug and --output, to hand over to a follow-up verb."""
    words = ["--format", arguments.format, *(["--debug"] if arguments.debug else [])]
    return words if arguments.output is None else [*words, "--output", str(arguments.output)]


RUNS = Path("runs")
"""Runs are put here unless `--output` says otherwise."""


def add_run(parser: argparse.ArgumentParser, name: str = "run", metavar: str = "DIR") -> None:
    """The argument for a run directory: by default the newest one below `runs/`."""
    # A default that is text goes through `type` as well, but only if the argument is missing.
    parser.add_argument(
        name, nargs="?", type=_run_path, default="", metavar=metavar, help="the run (default: the newest below runs/)"
    )


def _run_path(text: str) -> Path:
    if text:
        return Path(text)
    started = [(manifest.stat().st_mtime, manifest.parent) for manifest in RUNS.glob("*/run.json")]
    if not started:
        raise argparse.ArgumentTypeError("there is no run below runs/; name a run directory")
    newest = max(started)[1]
    warn(f"aiperf: the newest run is {newest}")
    return newest


def suggest(option: argparse.Action, values: Sequence[str]) -> None:
    """Let the shell complete an option from these values; others stay allowed."""
    option.completer = lambda **_: values  # type: ignore[attr-defined]


def write_output(file: Path, text: str) -> None:
    """Write a file that a user asked for.

    Raises EnvironmentNotReadyError if the file system refuses.
    """
    try:
        write_atomically(file, text.encode())
    except OSError as error:
        raise EnvironmentNotReadyError([f"{file} cannot be written: {error}"]) from error


def add_format(parser: argparse.ArgumentParser, formats: tuple[str, ...] = FORMATS) -> None:
    """The option --format."""
    parser.add_argument("--format", choices=formats, default=formats[0], help="how to print (default: %(default)s)")


def add_no_page(parser: argparse.ArgumentParser) -> None:
    """The option --no-page of a verb that ends with a report."""
    parser.add_argument(
        "--no-page",
        action="store_true",
        help="write numbers and tables alone; aiperf report draws page and figures later",
    )


def report_words(arguments: argparse.Namespace, directory: Path) -> list[str]:
    """Build the words after `aiperf` that print the report with which a verb ends.

    The verb has the options of `add_format` and `add_no_page`.
    """
    return ["report", str(directory), "--format", arguments.format, *(["--no-page"] if arguments.no_page else [])]
