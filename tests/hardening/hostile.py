"""Hostile values, and verbs of the command line run in process."""

import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from aiperf.__main__ import main
from aiperf.untrusted.text import MESSAGE_BYTES, has_control

CORPUS = Path(__file__).parent / "corpus"

TEXTS = (
    "", " ", "\0", "a\0b", "a\nb", "a\rb", "a\tb", "\x1b[2J", "\x9b31m", "\u202eevil", "\u2028", "\udcff", "\x7f",
    "x" * 5000, "x" * 200_000, "9" * 5000, "[bold]", "[/bold]", "[/]", "=1+1", "+1", "-1", "@x", "a b", "a;b",
    "$(id)", "`id`", "'", '"', "../../x", "/dev/zero", "n1\nProlog=/evil", "-oProxyCommand=x", "--wrap=id",
    "{}", "%s", "NaN", "inf",
    "1e999", "-0", "0x10", "1_0", "١٢", "1h" * 30, "1" * 39 + "x", "٣h", "true", "None", "a=b", "#", "héé",
    "🙂" * 200,
)  # fmt: skip

NUMBERS = (
    0, -1, -7, 1.5, -0.5, 1e-320, 1e308, -1e308, math.inf, -math.inf, math.nan, 10**9, 10**30, 10**400, 2**31, 2**63,
    -(2**63), 1 << 20_000,
)  # fmt: skip

STRUCTURES: tuple[object, ...] = (
    True,
    [],
    [None],
    [[]],
    {},
    {"a": 1},
    ["a", 1],
    [10**30],
    [math.nan],
    ["\n"],
    ["x" * 5000],
    ["-x"] * 2000,
    [0] * 200_000,
    {"a" * 5000: {"b": []}},
    ("x",),
    b"x",
    object,
)


def nested(depth: int) -> object:
    """Lists within lists."""
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


VALUES: tuple[object, ...] = (*TEXTS, *NUMBERS, *STRUCTURES, nested(50), nested(900))


@dataclass(frozen=True)
class Said:
    """What a verb answered."""

    code: int
    out: str
    err: str

    @property
    def message(self) -> str:
        """Its complaint, without the usage that argparse prints above."""
        return self.err[self.err.rfind("error: ") :] if "usage: " in self.err else self.err


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Said:
    """Run a verb in this process. An exception that it does not expect goes through."""
    capsys.readouterr()
    try:
        code = main(words)
    except SystemExit as end:
        code = int(end.code or 0)
    found = capsys.readouterr()
    return Said(code, found.out, found.err)


def refused(said: Said) -> None:
    """Assert that a verb complained as it should: shortly, and harmless for the terminal."""
    assert said.code in (1, 2, 3), said
    assert 0 < len(said.message.encode()) <= MESSAGE_BYTES + len("aiperf: "), said.message
    assert "Traceback" not in said.err
    harmless(said.err)


def harmless(text: str) -> None:
    """Assert that no character but line feeds steers a terminal."""
    assert not has_control(text.replace("\n", ""))
