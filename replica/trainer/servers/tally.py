"""The count of a group's updates in an epoch, as its root keeps it, real or simulated."""

from dataclasses import dataclass, field

from aiperf.facts import ExchangeFacts


@dataclass(slots=True)
class Tally:
    """Updates of one group in its present epoch."""

    epoch: int
    returned: bool | None = None
    """True if the group was lost before and begins again with this epoch."""
    steps: int = 0
    images: int = 0
    staleness: list[int] = field(default_factory=list)
    """A histogram: entry n counts the updates whose gradient was n versions old."""
    computing_s: float = 0.0
    group_s: float = 0.0
    waiting_s: float = 0.0

    def add(self, images: int, staleness: int) -> None:
        """Count an update."""
        self.steps += 1
        self.images += images
        self.staleness += [0] * (staleness + 1 - len(self.staleness))
        self.staleness[staleness] += 1

    def facts(self, group: int, bytes_exchanged: int) -> ExchangeFacts:
        """The facts of the epoch."""
        return ExchangeFacts(
            epoch=self.epoch,
            group=group,
            updates=self.steps,
            images=self.images,
            staleness=tuple(self.staleness),
            computing_s=self.computing_s,
            group_s=self.group_s,
            waiting_s=self.waiting_s,
            bytes_exchanged=bytes_exchanged,
            returned=self.returned,
        )
