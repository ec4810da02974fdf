"""One writer's raw lines: their chain, their numbers and their clock.

Looked at in the process that reads the file: a long history has millions of lines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from aiperf.errors import RecordDamagedError
from aiperf.records.chain import broken_links, hash_of, link_of
from aiperf.records.damage import Damage
from aiperf.records.decoding.scan import Head, Scanner
from aiperf.records.record import decode_record

DRIFT_MS = 1
"""Largest difference between two values of UTC minus monotonic clock of one writer.

A writer derives the one from the other (`aiperf.clock.SystemClock`): the difference is constant,
but for the rounding of other implementations.
"""

FALL_MS = 60_000
"""Most by which a replica's record may be earlier than the one before it.

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
    """By sequence number, of the lines that were asked for and are there."""
    damages: tuple[Damage, ...] = ()


def check_lines(
    file: str, lines: Sequence[bytes], first_link: str, wanted: Collection[int] = (), heads: Sequence[Head | None] = ()
) -> LineFacts:
    """Check the complete lines of a file (relative to the run, such as history/primary-1.jsonl).

    `first_link` is the link that the first line must carry; `wanted` are sequence numbers. `heads`
    are those of the lines if they are known.
    """
    chained = not lines or link_of(lines[0]) is not None
    damages = [
        Damage(file, number, "chain", f"the link is {found}", expected)
        for number, found, expected in broken_links(lines, first_link)
    ]
    hashes: dict[int, str] = {}
    known = heads or [head_of(line) for line in lines]
    damages += _heads(file, zip(lines, known, strict=True), chained, wanted, hashes)
    return LineFacts(len(lines), chained, hashes, tuple(damages))


def _heads(
    file: str, lines: Iterable[tuple[bytes, Head | None]], chained: bool, wanted: Collection[int],
    hashes: dict[int, str],
) -> Iterator[Damage]:  # fmt: skip
    """Sequence numbers that are not 0, 1, 2, ...; clocks that step, and times that fall.

    Adds the hashes that are wanted.
    """
    allowed_fall_ms = fall_ms(file)
    expected, anchor_ms, latest_ms = 0, None, None
    for number, (line, head) in enumerate(lines, start=1):
        if head is None:
            expected += 1  # a damaged line: it has a number of its own
            continue
        sequence, time_ms, monotonic_ms = head
        if sequence in wanted:
            hashes.setdefault(sequence, hash_of(line))
        if sequence != expected:
            yield Damage(file, number, "sequence", f"the record has number {sequence}", f"number {expected}")
        expected = sequence + 1
        if not chained:
            continue
        if anchor_ms is None:
            anchor_ms = time_ms - monotonic_ms
        elif abs(time_ms - monotonic_ms - anchor_ms) > DRIFT_MS:
            found = f"UTC minus the monotonic clock is {time_ms - monotonic_ms} ms"
            yield Damage(file, number, "time", found, f"{anchor_ms} ms as in the record before")
            anchor_ms = time_ms - monotonic_ms
        if latest_ms is not None and time_ms < latest_ms - allowed_fall_ms:
            found = f"the record is {latest_ms - time_ms} ms earlier than one before it"
            yield Damage(file, number, "time", found, f"at most {allowed_fall_ms} ms")
        latest_ms = time_ms if latest_ms is None else max(latest_ms, time_ms)


def fall_ms(file: str) -> int:
    """Most by which a record of a file, such as history/primary-1.jsonl, may be too early."""
    return 0 if file.startswith("history/primary-") else FALL_MS


def head_of(line: bytes) -> Head | None:
    """The head of a line; None for one that cannot be read."""
    found = Scanner("").scan(line)
    if found is not None:
        return found[0]
    try:
        record = decode_record(line)
    except RecordDamagedError:
        return None
    return record.sequence, record.time_ms, record.monotonic_ms
