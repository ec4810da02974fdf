"""Reports of progress as columns: they are most records of a long run.

A file whose reports and epochs are all as its trials make them keeps them in columns, without an
object each. Of any other, they become records again, for the checks that word what they find. The
same holds for a primary's witnesses of epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np

from aiperf.facts import ProgressFacts, Stamped
from aiperf.ranges import LAST_TRIAL
from aiperf.records.bodies import ProgressMade
from aiperf.records.decoding.epochs import EpochColumns
from aiperf.records.record import Record
from analysis.reading.columns import Marks, Numbers
from analysis.reading.integrity.bounds import images_of_epoch
from analysis.reading.integrity.heard.columns import WitnessColumns
from analysis.reading.integrity.view import RunView, WriterRecords
from analysis.reading.training.completed import are_sound, events_of

Numbered = tuple[int, Record]
"""The line of a record, and the record."""


def in_range(reports: Numbers) -> bool:
    """True if a record may have such numbers; those of other reports are damage."""
    return not len(reports) or bool(reports[:, 3].max() <= LAST_TRIAL and reports[:, 4].max() <= 10**6)


def settled(read: WriterRecords, view: RunView, counts: bool) -> WriterRecords:
    """The same with the reports and epochs as columns that no check has anything to say about.

    Others are among the records. `counts`: every record of the file does.
    """
    if not counts and len(read.witnesses):
        return _with(read, [_heard(read, place) for place in range(len(read.witnesses))], witnesses=WitnessColumns())
    if not len(read.progress) and not len(read.epochs):
        return read
    is_usual = counts and not read.damages and not read.lines.damages and are_sound(read, view)
    wanted = _wanted(read, view) if is_usual else None
    if wanted is None:
        own = [_record(read.writer, row) for row in read.progress.tolist()]
        own += [_completed(read, row) for row in range(len(read.epochs))]
        return _with(read, own, progress=read.progress[:0], epochs=EpochColumns())
    if not wanted.any():
        return read
    return _with(read, [_record(read.writer, row) for row in read.progress[wanted].tolist()],
                 progress=read.progress[~wanted])  # fmt: skip


def _with(read: WriterRecords, own: list[Numbered], **rest: Any) -> WriterRecords:
    """The same with more records, in their places."""
    pairs = sorted([*zip(read.numbers, read.records, strict=True), *own], key=itemgetter(0))
    numbers, records = zip(*pairs, strict=True)
    return replace(read, records=records, numbers=numbers, **rest)


def _heard(read: WriterRecords, row: int) -> Numbered:
    place, time_ms, monotonic_ms = read.witnesses.rows[row, :3].tolist()
    return place + 1, Record(read.writer, place, time_ms, monotonic_ms, read.witnesses.body(row), None)


def _record(writer: str, row: list[int]) -> Numbered:
    place, time_ms, monotonic_ms, trial, epoch, trained, evaluated = row
    body = ProgressMade(trial=trial, epoch=epoch, images_trained=trained, images_evaluated=evaluated)
    return place + 1, Record(writer, place, time_ms, monotonic_ms, body, None)


def _completed(read: WriterRecords, row: int) -> Numbered:
    place, time_ms, monotonic_ms = read.epochs.whole[row, :3].tolist()
    return place + 1, Record(read.writer, place, time_ms, monotonic_ms, read.epochs.body(row), None)


def _wanted(read: WriterRecords, view: RunView) -> Marks | None:
    """The reports that checks look at: the last one of an open epoch; None if any is strange.

    `integrity.bounds.check_order` finds nothing in reports that follow each other between a start
    and an epoch of their trial, and nothing else without them.
    """
    rows, most = read.progress, images_of_epoch(view)
    if not len(rows):
        return np.zeros(0, bool)
    events = events_of(read)
    if view.is_science or view.config.training.groups > 1 or most is None or events is None or not len(events):
        return None
    places, times, _, trials, epochs, trained, evaluated = rows.T
    event = np.searchsorted(events[:, 0], places) - 1
    if event[0] < 0:
        return None
    _, of_trial, of_epoch, since, *_ = events[event].T
    is_last = np.append(event[1:] != event[:-1], True)
    falls = (times[1:] < times[:-1]) | _less((trained[1:], evaluated[1:]), (trained[:-1], evaluated[:-1]))
    if (
        (trials != of_trial).any() or (epochs != of_epoch).any() or (times < since).any()
        or (falls & ~is_last[:-1]).any() or trained.max() > most[0] or evaluated.max() > most[1]
    ):  # fmt: skip
        return None
    following = np.append(events, np.full((1, events.shape[1]), -1), axis=0)[event[is_last] + 1]
    completes = following[:, 4] >= 0
    last, end = rows[is_last][completes], following[completes]
    behind = _less((end[:, 4], end[:, 5]), (last[:, 5], last[:, 6]))
    if ((end[:, 2] != last[:, 4] + 1) | (end[:, 3] < last[:, 1]) | behind).any():
        return None
    wanted = np.zeros(len(rows), bool)
    wanted[np.flatnonzero(is_last)[~completes]] = True
    return wanted


def _less(one: tuple[Numbers, Numbers], other: tuple[Numbers, Numbers]) -> Marks:
    """True where a pair of images trained and evaluated is less than another."""
    found: Marks = (one[0] < other[0]) | ((one[0] == other[0]) & (one[1] < other[1]))
    return found


def note(found: dict[int, Numbers], reports: Numbers) -> None:
    """Add the reports of a file to those of each trial."""
    if not len(reports):
        return
    begins = np.flatnonzero(np.append(True, np.diff(reports[:, 3]) != 0)).tolist()
    for begin, end in pairwise([*begins, len(reports)]):
        trial, own = int(reports[begin, 3]), reports[begin:end]
        found[trial] = np.concatenate([found[trial], own]) if trial in found else own


def stamped(reports: Mapping[int, Numbers], trial: int, offset_ms: int) -> list[Stamped[ProgressFacts]]:
    """The reports of a trial, at times that are corrected by the offset of their writer's clock."""
    if trial not in reports:
        return []
    return [
        Stamped(time_ms - offset_ms, ProgressFacts(epoch=epoch, images_trained=trained, images_evaluated=evaluated))
        for _, time_ms, _, _, epoch, trained, evaluated in reports[trial].tolist()
    ]
