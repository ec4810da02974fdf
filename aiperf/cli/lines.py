"""Lines and documents on the terminal, which text from outside does not steer."""

import sys
from pathlib import Path
from typing import TextIO

from aiperf.cli.program import as_typed
from aiperf.cli.waiting import clear, finish
from aiperf.untrusted.text import for_json, for_terminal


def say(*lines: object, stream: TextIO | None = None) -> None:
    """Write lines to standard output, or to another stream."""
    out = stream or sys.stdout
    if out is sys.stdout:
        finish()
    else:
        clear()
    out.write("".join(f"{as_typed(for_terminal(line))}\n" for line in lines))
    out.flush()


def warn(*lines: object) -> None:
    """Write lines to standard error."""
    say(*lines, stream=sys.stderr)


def say_json(document: str) -> None:
    """Write a JSON document to standard output."""
    finish()
    sys.stdout.write(f"{for_json(document)}\n")


def say_text(text: str) -> None:
    """Write a text of several lines that is harmless already: a script, a table of CSV, help."""
    finish()
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def to_open(page: Path) -> str:
    """Say which page was written, as an address that terminals and browsers open."""
    return f"open the page in a browser: {page.absolute().as_uri()}"
