"""A recording of a profiler as plain values: operations, spans and allocations, in seconds."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """An operation on one lane (a thread of the executor, or a stream of a device)."""

    start_s: float
    end_s: float
    node: str
    operation: str
    lane: str
    library: str = ""
    phase: str = ""
    """Phase if the recording has it; else it follows from the names."""
    work: tuple[tuple[str, float | None], ...] = ()
    """Floating-point operations of instructions of XLA, by node; None if XLA does not know them."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A period in which an operation was the innermost of its lane."""

    start_s: float
    end_s: float
    event: Event

    @property
    def seconds(self) -> float:
        """The length in seconds."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the program that was marked by name, such as a whole training step."""

    name: str
    start_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        """The length in seconds."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class Allocation:
    """A piece of memory that was taken or given back."""

    moment_s: float
    taken: bool
    address: int
    size: int
    """Bytes of the chunk."""
    requested: int
    """Bytes that were asked for."""
    node: str
    region: str
    """`output`, `temp` or `persist`; empty when given back."""
    allocator: str
    in_use: int
    """Bytes of the allocator in use afterwards."""
    lifetime_peak: int
    fragmentation: float | None
    """Share of the free memory that is not in its largest piece, 0 to 1; None if not recorded."""
    phase: str = ""
    """Phase if the recording has it; else it follows from the node."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The operations, spans and allocations of a recording."""

    events: tuple[Event, ...] = ()
    spans: tuple[Span, ...] = ()
    allocations: tuple[Allocation, ...] = ()

    def named(self, name: str) -> list[Span]:
        """The spans of that name, in order."""
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.start_s)

    def within(self, span: Span) -> Recording:
        """The part of the recording that began in a span."""
        return Recording(
            tuple(event for event in self.events if span.start_s <= event.start_s < span.end_s),
            tuple(each for each in self.spans if span.start_s <= each.start_s < span.end_s),
            tuple(each for each in self.allocations if span.start_s <= each.moment_s < span.end_s),
        )


def segments(events: Iterable[Event]) -> Iterator[Segment]:
    """Find the times of each event without those of the events inside it on the same lane."""
    lanes: dict[str, list[Event]] = {}
    for event in events:
        lanes.setdefault(event.lane, []).append(event)
    for lane in lanes.values():
        yield from _innermost(sorted(lane, key=lambda event: (event.start_s, -event.end_s)))


def _innermost(events: list[Event]) -> Iterator[Segment]:
    open_events: list[Event] = []
    reached = 0.0
    for event in events:
        while open_events and open_events[-1].end_s <= event.start_s:
            reached = yield from _close(open_events, reached)
        if open_events and event.start_s > reached:
            yield Segment(reached, event.start_s, open_events[-1])
        open_events.append(event)
        reached = event.start_s
    while open_events:
        reached = yield from _close(open_events, reached)


def _close(open_events: list[Event], reached: float) -> Generator[Segment, None, float]:
    """End the innermost event; gives the time up to which the lane is known."""
    event = open_events.pop()
    if event.end_s > reached:
        yield Segment(reached, event.end_s, event)
    return max(reached, event.end_s)
