"""The console that tables are printed on, for which text from outside is never markup."""

from typing import Any, TextIO

from rich.console import Console
from rich.style import Style
from rich.text import Text

from aiperf.cli.program import as_typed
from aiperf.cli.waiting import finish
from aiperf.untrusted.text import for_terminal

WIDTH = 140
"""Columns if standard output is not a terminal."""


class PlainConsole(Console):
    """A console for which no text is markup, an emoji's name or a control sequence.

    The sign of life ends when something is printed, not before: what is printed may still be worked
    out after the console was opened.
    """

    def __init__(self, file: TextIO | None = None, width: int | None = None, highlight: bool = True) -> None:
        super().__init__(file=file, width=width, markup=False, emoji=False, highlight=highlight)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as `Console.print` does."""
        finish()
        super().print(*objects, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Render a text of a table, a title or a line, as harmless for a terminal."""
        return super().render_str(as_typed(for_terminal(text)), **{**options, "markup": False, "emoji": False})


def open_console() -> PlainConsole:
    """A console on standard output, as wide as the terminal."""
    console = PlainConsole()
    return console if console.is_terminal else PlainConsole(width=WIDTH)


def plain(text: object, style: str | Style = "") -> Text:
    """A text for rich: no part of it is markup, and it is one line."""
    return Text(for_terminal(text), style)
