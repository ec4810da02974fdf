"""What all verbs share: how a verb is described, common options, output formats."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aiperf.errors import EnvironmentNotReadyError
from aiperf.files import write_atomically

FORMATS = ("table", "json")


@dataclass(frozen=True, slots=True)
class Command:
    """A verb of the command line. `follow_up` may give the arguments of a verb to run after it."""

    description: str
    example: str
    configure: Callable[[argparse.ArgumentParser], None]
    execute: Callable[[argparse.Namespace], int]
    follow_up: Callable[[argparse.Namespace], list[str]] = lambda arguments: []


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


def write_output(file: Path, text: str) -> None:
    """Write a file that a user asked for. Raises EnvironmentNotReadyError if the file system refuses."""
    try:
        write_atomically(file, text.encode())
    except OSError as error:
        raise EnvironmentNotReadyError([f"{file} cannot be written: {error}"]) from error


def add_format(parser: argparse.ArgumentParser, formats: tuple[str, ...] = FORMATS) -> None:
    """The option --format."""
    parser.add_argument("--format", choices=formats, default=formats[0], help="how to print (default: %(default)s)")
