"""The name by which this program was started, so that commands in its messages can be pasted."""

import functools
import os
import re
import shlex
import sys
from pathlib import Path

from aiperf.cli.verbs import VERBS

# Not in the middle of a word or a path: `runs/aiperf run`.
_TYPED = rf"(?<![\w./-])aiperf(?= (?:help|--help|VERB|{'|'.join(VERBS)})\b)"


@functools.cache
def program() -> str:
    """Name the command to type for `aiperf` in the shell that started this process.

    `aiperf` if its PATH finds this one, as in an activated environment; else the path of this one.
    """
    import shutil  # noqa: PLC0415 - few messages need it

    started = Path(sys.argv[0])
    script = started if started.name == "aiperf" else Path(sys.executable).with_name("aiperf")
    found = shutil.which("aiperf")
    if not script.exists():
        return f"{shlex.quote(sys.executable)} -m aiperf"
    if found and Path(found).samefile(script):
        return "aiperf"
    here = script.absolute()
    try:
        below = here.is_relative_to(Path.cwd())
    except OSError:  # the folder was removed
        below = False
    return shlex.quote(os.path.relpath(here) if below else str(here))


def as_typed(text: str) -> str:
    """A text with commands of `aiperf`, as this shell starts it."""
    return text if "aiperf " not in text or program() == "aiperf" else re.sub(_TYPED, lambda _: program(), text)
