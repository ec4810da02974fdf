"""Records that do not count: of superseded primaries, and of replicas after their loss.

What a primary and its replicas recorded after their successor began is lost. So is what a replica
recorded after the primary had given it up, as one does whose node is cut off from the primary and
not from the storage: its job is another replica's by then.

This loses operations and never gains any, since the time is counted all the same. What could gain
something is damage: to release the replicas again, or to be at work for longer than an honest
primary takes to notice, which would be a second try at a part of the run.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from aiperf.records.bodies import JobIssued, RunReleased
from aiperf.records.columns import SEQUENCE, TIME
from aiperf.records.damage import Damage
from aiperf.records.fencing import PRIMARY
from analysis.reading.integrity.view import CLOCK_TOLERANCE_MS, Placed, RunView, WriterRecords, replica_of

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

    def take_from(self, read: WriterRecords, view: RunView) -> WriterRecords:
        """Take the records that do not count out of a file. Those of primaries come first."""
        fence = view.ledger.fences.limit(read.writer)
        counted = self._without_superseded(read, fence) if fence != _ALL else read
        limit = _last_before_loss(counted, view)
        if limit == _ALL:
            return counted
        kept = _up_to(counted, limit)
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
        return _up_to(read, limit)

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


def _up_to(read: WriterRecords, limit: float) -> WriterRecords:
    """The records of a file up to a sequence number."""
    kept = [pair for pair in zip(read.records, read.numbers, strict=True) if pair[0].sequence <= limit]
    return replace(
        read,
        records=tuple(record for record, _ in kept),
        numbers=tuple(number for _, number in kept),
        columns=read.columns.only(lambda rows: rows[:, SEQUENCE] <= limit),
    )


def _last_before_loss(read: WriterRecords, view: RunView) -> float:
    """The last record of a replica before its loss, or that its primary heard of; else infinite."""
    arrivals = view.primary.arrivals.get(read.writer)
    if not arrivals:
        return _ALL
    # An earlier loss is of an earlier start of the same replica.
    begun_ms, replica = arrivals[0].time_ms, replica_of(read.writer)
    losses = (item.time_ms for item in view.primary.losses if item.body.replica == replica)
    lost_ms = min((time_ms for time_ms in losses if time_ms >= begun_ms), default=None)
    if lost_ms is None:
        return _ALL
    limit_ms = lost_ms + CLOCK_TOLERANCE_MS + view.ledger.offsets_ms.get(read.writer, 0)
    late = [record.sequence for record in read.records if record.time_ms > limit_ms]
    for rows in read.columns.tables():
        late += rows[rows[:, TIME] > limit_ms, SEQUENCE].tolist()
    # Until it has ended, or falls silent, a lost replica is heard out.
    return max({min(late) - 1} | view.primary.wanted(read.writer)) if late else _ALL


def check_superseded(found: Uncounted) -> Iterator[Damage]:
    """Work of superseded primaries that an honest one does not do."""
    for place in found.releases:
        yield place.damage("time", "a superseded primary releases the replicas", "one release, which counts")
    if len(found.minutes) > MOST_MINUTES:
        name = min(found.primaries)
        minutes = f"superseded primaries worked in {len(found.minutes)} minutes"
        yield Damage(f"history/{name}.jsonl", None, "time", minutes, f"at most {MOST_MINUTES}")
