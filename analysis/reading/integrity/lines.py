"""One writer's raw lines: their chain, their numbers and their clock.

Looked at in the process that reads the file: a long history has millions of lines.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from aiperf.records.chain import broken_links, link_of
from aiperf.records.columns import MONOTONIC, PLACE, SEQUENCE, TIME, Numbers
from aiperf.records.damage import Damage

DRIFT_MS = 1
"""Largest difference between two values of UTC minus monotonic clock of one writer.

A writer derives the one from the other (`aiperf.clock.SystemClock`): the difference is constant,
but for the rounding of other implementations.
"""

FALL_MS = 60_000
"""Tolerance by which a replica's record may be earlier than the record before it.

A trainer's messages carry the moment at which they were sent; the agent may have recorded something
in between. How late it is depends on the load of the node. A wait for storage adds nothing: records
have their times before they are written. A primary records nothing but its own present.
"""


@dataclass(frozen=True, slots=True)
class LineFacts:
    """A file as its lines show it, without their content."""

    count: int = 0
    chained: bool = True
    """False if the first line carries no hash; True without any line."""
    hashes: dict[int, str] = field(default_factory=dict)
    """Hashes by sequence number, of the lines that were asked for and are there."""
    damages: tuple[Damage, ...] = ()


def check_lines(
    file: str, lines: Sequence[bytes], hashes: Sequence[str], first_link: str, wanted: Collection[int], heads: Numbers
) -> LineFacts:
    """Check the complete lines of a file (relative to the run, such as history/primary-1.jsonl).

    `first_link` is the link that the first line must carry; `wanted` are sequence numbers. `heads`
    has a row for each line that could be read: that of a damaged line says nothing.
    """
    chained = not lines or link_of(lines[0]) is not None
    damages = [
        Damage(file, number, "chain", f"the link is {found}", expected)
        for number, found, expected in broken_links(lines, hashes, first_link)
    ]
    damages += _numbers(file, heads)
    if chained:
        damages += _clocks(file, heads)
    sequences = heads[:, SEQUENCE]
    asked = np.flatnonzero(np.isin(sequences, np.fromiter(wanted, np.int64, len(wanted))))[::-1]  # the first one stays
    found = {int(sequences[row]): hashes[heads[row, PLACE]] for row in asked}
    # A line that cannot be read has no number of its own: the one that it would have in an intact
    # file stands for it.
    damaged = set(range(len(lines))).difference(heads[:, PLACE].tolist())
    found |= {number: hashes[number] for number in damaged.intersection(wanted).difference(found)}
    return LineFacts(len(lines), chained, found, tuple(damages))


def _numbers(file: str, heads: Numbers) -> Iterator[Damage]:
    """Sequence numbers that are not 0, 1, 2, ...; a damaged line has a number of its own."""
    # Relative to the readable line before, so that one damaged line is one damage and not one for
    # each line after it.
    before = np.concatenate([np.full((1, 2), -1), heads[:-1, (PLACE, SEQUENCE)]])
    expected = before[:, 1] + heads[:, PLACE] - before[:, 0]
    for row in np.flatnonzero(heads[:, SEQUENCE] != expected):
        yield Damage(
            file,
            int(heads[row, PLACE]) + 1,
            "sequence",
            f"the record has number {heads[row, SEQUENCE]}",
            f"number {expected[row]}",
        )


def _clocks(file: str, heads: Numbers) -> Iterator[Damage]:
    """Clocks that step, and times that fall."""
    times, anchors = heads[:, TIME], heads[:, TIME] - heads[:, MONOTONIC]
    # Between two changes of the difference none is to be found: an honest file has none, or few.
    changes = np.flatnonzero(np.diff(anchors, prepend=anchors[:1]))
    anchor = int(anchors[0]) if len(anchors) else 0
    for row in changes:
        if abs(int(anchors[row]) - anchor) > DRIFT_MS:
            found = f"UTC minus the monotonic clock is {anchors[row]} ms"
            yield Damage(file, int(heads[row, PLACE]) + 1, "time", found, f"{anchor} ms as in the record before")
            anchor = int(anchors[row])
    fall_ms = 0 if file.startswith("history/primary-") else FALL_MS
    falls = np.maximum.accumulate(times) - times
    for row in np.flatnonzero(falls > fall_ms):
        found = f"the record is {falls[row]} ms earlier than one before it"
        yield Damage(file, int(heads[row, PLACE]) + 1, "time", found, f"at most {fall_ms} ms")
