"""The primary's witness: what it heard of epochs and trials, against the replicas' files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.records.bodies import EpochWitnessed, TrialClosed, TrialEnded
from aiperf.records.columns import (
    EPOCH,
    PLACE,
    RECORD,
    SEQUENCE,
    TIME,
    TRIAL,
    Epochs,
    Numbers,
    Witnesses,
    places_of,
    rows_of,
    texts,
)
from aiperf.records.damage import Damage
from aiperf.records.fencing import CLOCK_TOLERANCE_MS
from aiperf.wire.messages import CANCELLED
from analysis.reading.integrity.traces import Traces
from analysis.reading.integrity.view import (
    Placed,
    RunView,
    TrialTrace,
    WriterRecords,
    placed_witness,
    replica_of,
)

LATE_MS = 120_000
"""Tolerance for the primary to hear of an epoch after its end, if its record is written at once.

Agent and primary may wait for a processor, and the agent for its file system (`storage.patience`):
it reports no record that is not durable. Time in which the primary stood still does not count. An
epoch cannot be heard of before its end, except for the clocks' error.
"""

ENDING_MS = 60_000
"""Longest time for the primary to end a lost replica and to hear it out."""


def late_ms(view: RunView) -> int:
    """Tolerance within which the primary of a run must hear of an epoch after its end."""
    return LATE_MS + round(view.config.storage.patience * 1000)


def check_witnesses(read: WriterRecords, traces: Traces, view: RunView) -> Iterator[Damage]:
    """Epochs of a file that are not as the primary heard of them, or that it did not hear of."""
    heard = _Witnessed.of(read.writer, view)
    sequences, hashes = heard.numbers[:, RECORD], read.lines.hashes
    # Witnesses are sorted by record, so equal numbers are neighbours. `np.append` to an empty array
    # would give one row.
    again = np.append(False, sequences[1:] == sequences[:-1]) if len(sequences) else np.zeros(0, bool)
    for row in places_of(again):
        found = f"record {sequences[row]} of {read.writer} is witnessed again"
        yield heard.place(row).damage("witness", found, "once")
    epochs = traces.epochs.only(_first_of_each(traces.epochs))
    rows = epochs.whole
    # Of each witness the row of its epoch; that of the sentinel -1 behind the last one if there is
    # none.
    at = np.searchsorted(rows[:, SEQUENCE], sequences)
    there = np.append(rows[:, SEQUENCE], -1)[at] == sequences
    said = np.concatenate([rows, np.full((1, rows.shape[1]), -1)])[np.where(there, at, -1)]
    other = (said[:, (TRIAL, EPOCH)] != heard.numbers[:, (TRIAL, EPOCH)]).any(axis=1)
    # Hashes are compared as bytes: of a file with a damaged line they are of what is there now.
    known = texts([hashes.get(sequence, "") for sequence in sequences.tolist()])
    changed = known != heard.digests
    # The epoch's time is moved to the primary's clock, by which the witness is dated: the
    # difference is how long the report took. Pauses of the primary are looked up later, for the few
    # rows that are late.
    after_ms = heard.numbers[:, TIME] - (said[:, TIME] - view.ledger.offsets_ms.get(read.writer, 0))
    untimely = (after_ms < -CLOCK_TOLERANCE_MS) | (after_ms > late_ms(view))
    # One damage a witness, the gravest: what is said of another record says nothing of the time.
    for row in places_of(~again & (~there | other | changed | untimely)):
        line, witness = int(said[row, PLACE]) + 1, heard.place(row)
        if not there[row]:
            line, found = int(sequences[row]) + 1, "the record is not an epoch, or not there"
        elif other[row]:
            found = f"epoch {said[row, EPOCH]} of trial {said[row, TRIAL]}"
        elif changed[row]:
            found = f"a record with the hash {hashes.get(int(sequences[row]))}"
        else:
            yield from _untimely(read.file, line, int(after_ms[row]), witness, view)
            continue
        yield Damage(read.file, line, "witness", found, _as_heard(witness))
    yield from _unheard(read, epochs, sequences, view)


@dataclass(frozen=True, slots=True)
class _Witnessed:
    """Records of a writer that primaries heard of, sorted by record, then by file and line."""

    numbers: Numbers
    digests: NDArray[np.bytes_]
    _places: list[tuple[str, Witnesses, int]]

    @classmethod
    def of(cls, writer: str, view: RunView) -> _Witnessed:
        """Collect the records of a writer."""
        every = list(view.primary.witnessed.of(writer))
        places = [
            (view.primary.witnessed.files[number][0], heard, row)
            for number, heard in every
            for row in range(len(heard))
        ]
        numbers = np.concatenate([rows_of(7), *(heard.rows for _, heard in every)])
        digests = np.concatenate([texts(()), *(heard.digests for _, heard in every)])
        order = np.argsort(numbers[:, RECORD], kind="stable")
        return cls(numbers[order], digests[order], [places[row] for row in order])

    def place(self, row: int) -> Placed[EpochWitnessed]:
        """Make an object of one of them."""
        return placed_witness(*self._places[row])


def _first_of_each(epochs: Epochs) -> Numbers:
    """The row of each sequence number that is first in the file, in the order of the numbers."""
    # `LineFacts.hashes` has the first line of a number: both must speak of the same record.
    order = np.argsort(epochs.column(PLACE), kind="stable")
    return np.asarray(order[np.unique(epochs.column(SEQUENCE)[order], return_index=True)[1]], np.int64)


def _untimely(file: str, line: int, after_ms: int, witness: Placed[EpochWitnessed], view: RunView) -> Iterator[Damage]:
    """An epoch that was heard of too early, or too late for a primary that stood still."""
    body, ended_ms = witness.body, witness.time_ms - after_ms
    most_ms = late_ms(view) + view.primary.paused_ms(ended_ms, witness.time_ms)
    if not -CLOCK_TOLERANCE_MS <= after_ms <= most_ms:
        found = f"epoch {body.epoch} of trial {body.trial} ends {after_ms} ms before the primary heard of it"
        yield Damage(file, line, "time", found, f"{-CLOCK_TOLERANCE_MS} to {most_ms} ms")


def _as_heard(witness: Placed[EpochWitnessed]) -> str:
    body = witness.body
    return (
        f"epoch {body.epoch} of trial {body.trial}, with the hash {body.digest}, as {witness.file} line "
        f"{witness.line} says"
    )


def _unheard(read: WriterRecords, epochs: Epochs, heard: Numbers, view: RunView) -> Iterator[Damage]:
    """Epochs that the primary did not hear of, unless it or the replica died before it could."""
    last, rows = int(heard.max(initial=-1)), epochs.whole
    for row in places_of(~np.isin(rows[:, SEQUENCE], heard)):
        place, sequence, time_ms, _, trial, epoch = rows[row, : EPOCH + 1].tolist()
        # A pipe keeps its order: if a later record was heard of, this one was not reported.
        if sequence < last or not _excused(time_ms, read.writer, view):
            found = f"epoch {epoch} of trial {trial} was not witnessed by the primary"
            yield Damage(read.file, place + 1, "witness", found, "epoch_witnessed")


def _excused(at_ms: int, writer: str, view: RunView) -> bool:
    """True if the primary may have missed the last epochs of a file.

    The run is in progress; the epoch came after the end; the replica was lost, at most
    `run.replica_silence` and `storage.patience` later; or the primary died, and another one
    followed.
    """
    end = view.ledger.run_ended
    time_ms = view.corrected(writer, at_ms)
    if end is None or time_ms > end.body.end_ms:
        return True
    wait_s = view.config.run.replica_silence + view.config.storage.patience
    silence_ms = round(wait_s * 1000) + CLOCK_TOLERANCE_MS
    replica, arrivals = replica_of(writer), view.primary.arrivals.get(writer, [])
    gone_ms = [loss.time_ms for loss in view.primary.losses if loss.body.replica == replica]
    # Between its loss and the closing of its trial a replica is ended, and heard out.
    closed_ms = [closing.time_ms for closing in view.primary.closings_by_writer.get(writer, ())]
    gone_ms += [end_ms for end_ms in closed_ms if any(0 <= end_ms - lost_ms <= ENDING_MS for lost_ms in gone_ms)]
    if any(-CLOCK_TOLERANCE_MS <= moment_ms - time_ms <= silence_ms for moment_ms in gone_ms):
        return True
    files = [beginning.file for beginning in view.primary.beginnings]
    # A writer that no primary found ready has no primary whose death could excuse it.
    served = files.index(arrivals[-1].file) if arrivals else len(files)
    # The next primary alone: that of a later one says nothing of when this replica's primary died.
    return any(time_ms <= beginning.time_ms + late_ms(view) for beginning in view.primary.beginnings[served + 1 :][:1])


def check_closing(trace: TrialTrace[Any], view: RunView) -> Iterator[Damage]:
    """A trial that did not end as the primary heard."""
    # A second closing is a damage of its own (`check_unclosed`).
    for closing in view.primary.closed.get(trace.trial, ())[:1]:
        how, until = closing.body.how, closing.body.sequence
        if closing.body.writer != trace.writer:
            if how != "lost" or trace.ended is not None:
                yield trace.started.damage(
                    "witness",
                    f"trial {trace.trial} was trained by {trace.writer}",
                    f"{closing.body.writer}, as {_place(closing)} says",
                )
            continue
        outcome, place = _outcome(trace, until)
        if outcome not in _ALLOWED[how]:
            yield place.damage(
                "witness",
                f"trial {trace.trial} {_WORDS[outcome]}",
                f"it was closed as {how}, as {_place(closing)} says",
            )


_ALLOWED = {
    "completed": {"ended"},
    "failed": {"failed"},
    "cancelled": {"cancelled"},
    # The run may stop the replica between the end of a trial and its report.
    "stopped": {"ended", "stopped", "open"},
    # The primary knows nothing of how the trial ended: the replica may have ended it in any way
    # before or after the last message that came through.
    "lost": {"ended", "failed", "cancelled", "stopped", "open"},
}
_WORDS = {
    "ended": "ended by itself",
    "failed": "failed",
    "cancelled": "was cancelled",
    "stopped": "was stopped",
    "open": "did not end",
}


def _outcome(trace: TrialTrace[Any], until: int | None) -> tuple[str, Placed[object]]:
    """Find how the file says that a trial ended, up to a record; and where."""
    # Without a record that was heard of, whatever the file says of the end came later.
    limit = until if until is not None else -1
    if trace.failed is not None and trace.failed.sequence <= limit:
        return "cancelled" if trace.failed.body.kind == CANCELLED else "failed", trace.failed
    if trace.ended is not None and trace.ended.sequence <= limit:
        return "stopped" if _was_stopped(trace.ended) else "ended", trace.ended
    return "open", trace.started


def _was_stopped(ended: Placed[TrialEnded]) -> bool:
    return ended.body.reason == "stopped"


def _place(closing: Placed[TrialClosed]) -> str:
    return f"{closing.file} line {closing.line}"


def check_closings(read: WriterRecords, view: RunView) -> Iterator[Damage]:
    """Last records that the primary heard of and that a file does not have, or not so."""
    for closing in view.primary.closings_by_writer.get(read.writer, ()):
        sequence, digest = closing.body.sequence, closing.body.digest
        if sequence is None:
            continue
        found = read.lines.hashes.get(sequence)
        if found is None:
            yield Damage(
                read.file,
                None,
                "witness",
                f"the file ends with record {read.lines.count - 1}",
                f"record {sequence} at least, as {_place(closing)} says",
            )
        elif found != digest:
            yield Damage(
                read.file,
                sequence + 1,
                "witness",
                f"a record with the hash {found}",
                f"{digest}, as {_place(closing)} says",
            )


def check_unclosed(view: RunView) -> Iterator[Damage]:
    """Jobs that were not closed exactly once.

    The last job of a replica may be open if the primary was killed after the end.
    """
    # Jobs are in the order of their records, so the last one of each replica stays.
    last = {jobs[0].body.replica: trial for trial, jobs in view.primary.issued.items()}
    for trial, jobs in sorted(view.primary.issued.items()):
        closings = view.primary.closed.get(trial, [])
        for again in closings[1:]:
            yield again.damage("witness", f"trial {trial} is closed again", "once")
        if not closings and not view.unfinished and last[jobs[0].body.replica] != trial:
            yield jobs[0].damage("witness", f"trial {trial} was not closed", "trial_closed")
    for trial, closings in sorted(view.primary.closed.items()):
        if trial not in view.primary.issued:
            yield closings[0].damage("witness", f"trial {trial} is closed", "a job that was issued")
    for writer in view.primary.witnessed.writers():
        if writer not in view.primary.arrivals:
            number, heard = min(
                view.primary.witnessed.of(writer), key=lambda item: (int(item[1].rows[0, PLACE]), item[0])
            )
            first = placed_witness(view.primary.witnessed.files[number][0], heard, 0)
            yield first.damage("witness", f"epochs of {writer} are witnessed", "a replica_ready that names it")


def check_late(view: RunView) -> Iterator[Damage]:
    """Epochs that the primary heard of before it had issued their trial, or after it was closed."""
    files = {file.file: number for number, file in enumerate(view.primary.files)}
    for file, heard in view.primary.witnessed.files:
        lines = heard.rows[:, PLACE] + 1
        # Spans are looked up once for each trial, of which there are far fewer than witnesses.
        trials, which = np.unique(heard.rows[:, TRIAL], return_inverse=True)
        spans = [_lines_of(view, files, trial, file) for trial in trials.tolist()]
        first, last = np.array(spans, np.int64).reshape(-1, 2)[which.reshape(-1)].T
        for row in places_of((lines < first) | (lines > last)):
            place = placed_witness(file, heard, row)
            found = f"epoch {place.body.epoch} of trial {place.body.trial} is witnessed"
            if lines[row] < first[row]:
                yield place.damage("witness", found, "its job before")
            if lines[row] > last[row]:
                closing = view.primary.closed[place.body.trial][0]
                yield place.damage("witness", found, f"none after its end, as {_place(closing)} says")


LAST_LINE = 1 << 62
"""Number above that of any line in a file."""


def _lines_of(view: RunView, files: dict[str, int], trial: int, file: str) -> tuple[int, int]:
    """The first and last line of a file at which an epoch of a trial may be heard of."""
    job, closing = view.primary.issued.get(trial), view.primary.closed.get(trial)
    first, last = -1, LAST_LINE
    # Primaries follow one another: a job of a later file was issued after every line of this one.
    if job and files[job[0].file] >= files[file]:
        first = job[0].line if job[0].file == file else LAST_LINE
    if closing and files[closing[0].file] <= files[file]:
        last = closing[0].line if closing[0].file == file else -1
    return first, last
