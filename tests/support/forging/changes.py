"""Changes of records to forge with."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from aiperf.records.bodies import AnyBody
from aiperf.records.record import Record
from tests.support.forging import Change


def _fits(record: Record, kind: type[AnyBody], trial: int | None, epoch: int | None) -> bool:
    body: Any = record.body
    if not isinstance(body, kind) or trial not in (None, getattr(body, "trial", None)):
        return False
    return epoch in (None, getattr(body, "epoch", None))


def of(kind: type[AnyBody], trial: int | None = None, epoch: int | None = None, /, **changes: Any) -> Change:
    """Change bodies of one kind, of one trial, of one epoch; without changes they are removed."""

    def change(record: Record) -> Record | None:
        if not _fits(record, kind, trial, epoch):
            return record
        body: Any = record.body
        return replace(record, body=replace(body, **changes)) if changes else None

    return change


def twice(kind: type[AnyBody], trial: int | None = None, epoch: int | None = None) -> Change:
    """Repeat records."""
    return lambda record: (record, record) if _fits(record, kind, trial, epoch) else record


def moved(writer: str, by_ms: int, kind: type[Any] = object, monotonic: bool = True) -> Change:
    """Move records of a writer in time, on both clocks or on UTC alone."""

    def change(record: Record) -> Record:
        if record.writer != writer or not isinstance(record.body, kind):
            return record
        monotonic_ms = record.monotonic_ms + (by_ms if monotonic else 0)
        return replace(record, time_ms=record.time_ms + by_ms, monotonic_ms=monotonic_ms)

    return change


def both(first: Change, second: Change) -> Change:
    """One change after the other."""

    def change(record: Record) -> Sequence[Record]:
        found = first(record)
        between = (found,) if isinstance(found, Record) else found or ()
        after = [second(item) for item in between]
        return [r for item in after for r in ((item,) if isinstance(item, Record) else item or ())]

    return change
