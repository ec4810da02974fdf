"""Records that do not count: of superseded primaries, and of replicas after their loss.

What a primary and its replicas recorded after their successor began is lost. So is what a replica
recorded after the primary had given it up, as one does whose node is cut off from the primary and
not from the storage: its job is another replica's by then.

This loses operations and never gains any, since the time is counted all the same. What could gain
something is damage: to release the replicas again, or to be at work for longer than an honest
primary takes to notice, which would be a second try at a part of the run.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from aiperf.records.bodies import JobIssued, RunReleased
from aiperf.records.columns import SEQUENCE, TIME, Marks, Numbers
from aiperf.records.damage import Damage
from aiperf.records.fencing import PRIMARY, Fences
from aiperf.records.record import Record
from analysis.reading.integrity.view import Placed, WriterRecords

MOST_MINUTES = 5
"""Minutes in which superseded primaries of a run may have worked.

One looks at its claim every 15 s (`aiperf.run_directory.claim`). A machine that sleeps does not
work meanwhile.
"""

MINUTE_MS = 60_000

_ALL = float("inf")


@dataclass
class Uncounted:
    """The records of a run that do not count."""

    primaries: dict[str, int] = field(default_factory=dict)
    """Records of each primary."""
    epochs: int = 0
    """Epochs that superseded primaries and their replicas completed."""
    late_epochs: int = 0
    """Epochs that replicas completed after they were lost."""
    minutes: set[int] = field(default_factory=set)
    """UTC minutes in which they issued a job or heard of an epoch."""
    releases: list[Placed[object]] = field(default_factory=list)

    def take_from(self, read: WriterRecords, fences: Fences) -> WriterRecords:
        """Take the records that do not count out of a file."""
        limit, until_ms = fences.limit(read.writer), fences.until_ms(read.writer)
        counted = self._without_superseded(read, limit) if limit != _ALL else read
        if until_ms == _ALL:
            return counted
        kept = _only(counted, lambda record: record.time_ms <= until_ms, lambda rows: rows[:, TIME] <= until_ms)
        self.late_epochs += len(counted.columns.epochs) - len(kept.columns.epochs)
        return kept

    def _without_superseded(self, read: WriterRecords, limit: float) -> WriterRecords:
        for place in read.placed():
            if place.sequence > limit:
                self._note(read.writer, place)
        dropped = read.columns.only(lambda rows: rows[:, SEQUENCE] > limit)
        if read.writer.startswith(PRIMARY) and (count := sum(map(len, dropped.tables()))):
            self.primaries[read.writer] = self.primaries.get(read.writer, 0) + count
        self.epochs += len(dropped.epochs)
        self.minutes |= {*(dropped.witnesses.rows[:, TIME] // MINUTE_MS).tolist()}
        return _only(read, lambda record: record.sequence <= limit, lambda rows: rows[:, SEQUENCE] <= limit)

    def _note(self, writer: str, place: Placed[object]) -> None:
        if writer.startswith(PRIMARY):
            self.primaries[writer] = self.primaries.get(writer, 0) + 1
        if isinstance(place.body, JobIssued):
            self.minutes.add(place.time_ms // MINUTE_MS)
        if isinstance(place.body, RunReleased):
            self.releases.append(place)

    def notices(self) -> tuple[str, ...]:
        """Notices for the readers of a report; none of them is damage."""
        found = [
            f"{writer} was superseded by another primary and went on: its last {count} record(s) do not count"
            for writer, count in sorted(self.primaries.items())
        ]
        if self.epochs:
            found.append(f"{self.epochs} epoch(s) of superseded primaries do not count")
        if self.late_epochs:
            found.append(f"{self.late_epochs} epoch(s) that replicas completed after they were lost do not count")
        return tuple(found)


def _only(read: WriterRecords, rare: Callable[[Record], bool], frequent: Callable[[Numbers], Marks]) -> WriterRecords:
    """Some records of a file, by a function of the rare ones, and one of the columns."""
    kept = [pair for pair in zip(read.records, read.numbers, strict=True) if rare(pair[0])]
    return replace(
        read,
        records=tuple(record for record, _ in kept),
        numbers=tuple(number for _, number in kept),
        columns=read.columns.only(frequent),
    )


def check_superseded(found: Uncounted) -> Iterator[Damage]:
    """Work of superseded primaries that an honest one does not do."""
    for place in found.releases:
        yield place.damage("time", "a superseded primary releases the replicas", "one release, which counts")
    if len(found.minutes) > MOST_MINUTES:
        name = min(found.primaries)
        minutes = f"superseded primaries worked in {len(found.minutes)} minutes"
        yield Damage(f"history/{name}.jsonl", None, "time", minutes, f"at most {MOST_MINUTES}")
