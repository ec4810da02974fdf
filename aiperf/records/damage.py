"""Damage: a place in a run directory that is not as an honest run leaves it."""

from dataclasses import dataclass
from typing import Literal

from aiperf.untrusted.reading import shortened

DamageKind = Literal[
    "record",
    "chain",
    "sequence",
    "conflict",
    "time",
    "bounds",
    "witness",
    "architecture",
    "missing",
    "data",
    "facts",
    "evidence",
]
"""record: a line that cannot be read. chain: a link that is not the hash of the record before.
sequence: numbers that are missing, repeated or out of order. conflict: records that contradict
each other. time: clocks that do not run as one. bounds: a value that cannot be. witness: a file
that is not as the primary heard of it. architecture: a network that cannot be read or that its
morphs do not make. missing: a file that is not there. data: images that are not the data set's.
facts: a trainer that says other things than the run. evidence: rows of steps that are not those of
their epoch.
"""


MOST_SHOWN = 600
"""Characters of each part of a damage in a message: records may hold longer texts."""


@dataclass(frozen=True, slots=True)
class Damage:
    """One damage: the file below the run directory, the line from 1, what is found and expected.

    `line` is None for a whole file. `expected` is empty if `found` says it all.
    """

    file: str
    line: int | None
    kind: DamageKind
    found: str
    expected: str = ""

    def __str__(self) -> str:
        file, found, expected = (shortened(text, MOST_SHOWN) for text in (self.file, self.found, self.expected))
        place = file if self.line is None else f"{file} line {self.line}"
        return f"{place}: {found}" + (f"; expected {expected}" if expected else "")
