"""An input of the corpus, and the changes that make many of one."""

import contextlib
import io
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from aiperf.__main__ import main
from aiperf.errors import AiperfError

Action = Callable[[Path], str]
"""Hands an input to its reader, in an empty folder; what it complains of, or nothing."""


@dataclass(frozen=True)
class Case:
    """An input, by name, and its reader."""

    name: str
    action: Action


def complaint(call: Callable[[], object]) -> str:
    """The message of a reader; any exception that is not the program's own goes through."""
    try:
        call()
    except (AiperfError, OSError) as error:
        return str(error)
    return ""


def said(*words: str) -> str:
    """What a verb complains of, without the usage that argparse prints above."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.suppress(SystemExit):
        main(words)
    text = err.getvalue()
    return text[text.rfind("error: ") :] if "usage: " in text else text


ODD = (
    b"\0", b"\n", b"\x1b[2J", b"\xff\xfe", b"[" * 3000, b"{" * 3000, b"9" * 5000, b"-", b"e999", b"nan", b'"', b"'",
    b"&a [*a]", b"!!python/object/apply:os.system [id]", b"\\ud800", "\u202e".encode(), b": ", b"= ", b"#", b"\t",
)  # fmt: skip
"""Bytes that parsers meet rarely."""


def changed(data: bytes, rng: random.Random) -> bytes:
    """An input with one to three cuts, repetitions, flips or odd bytes."""
    for _ in range(rng.randint(1, 3)):
        start, end = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
        data = rng.choice(
            [
                data[:start],
                data[:start] + data[end:],
                data[:end] + data[start:],
                data[:start] + rng.choice(ODD) + data[start:],
                data[:start] + rng.choice(ODD) + data[end:],
                data[:start] + bytes([rng.randrange(256)]) + data[start + 1 :],
            ]
        )
    return data


def variants(data: bytes, count: int) -> Iterator[tuple[str, bytes]]:
    """Changed forms of an input, numbered; a number always gives the same one."""
    for number in range(count):
        yield f"change {number}", changed(data, random.Random(number))
