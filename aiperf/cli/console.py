"""The console that tables are printed on."""

from __future__ import annotations

from rich.console import Console

WIDTH = 140
"""Columns if standard output is not a terminal."""


def open_console() -> Console:
    """A console on standard output, as wide as the terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)
