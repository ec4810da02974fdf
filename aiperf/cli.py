"""What all verbs share: how a verb is described, common options, output formats."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

FORMATS = ("table", "json")


@dataclass(frozen=True, slots=True)
class Command:
    """A verb of the command line. `follow_up` may give the arguments of a verb to run after it."""

    description: str
    example: str
    configure: Callable[[argparse.ArgumentParser], None]
    execute: Callable[[argparse.Namespace], int]
    follow_up: Callable[[argparse.Namespace], list[str]] = lambda arguments: []


def add_format(parser: argparse.ArgumentParser, formats: tuple[str, ...] = FORMATS) -> None:
    """The option --format."""
    parser.add_argument("--format", choices=formats, default=formats[0], help="how to print (default: %(default)s)")
