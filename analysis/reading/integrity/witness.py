"""The primary's witness: what it heard of epochs and trials, against the replicas' files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from aiperf.records.bodies import EpochCompleted, EpochWitnessed, TrialClosed, TrialEnded
from aiperf.records.damage import Damage
from aiperf.records.decoding.epochs import EPOCH, PLACE, TIME, TRIAL
from aiperf.wire.messages import CANCELLED
from analysis.reading.columns import Numbers
from analysis.reading.integrity.heard.placed import Placed
from analysis.reading.integrity.heard.witnesses import Witnessed
from analysis.reading.integrity.traces import Traces, TrialTrace
from analysis.reading.integrity.view import CLOCK_TOLERANCE_MS, RunView, WriterRecords, replica_of

LATE_MS = 120_000
"""Most by which the primary may hear of an epoch after its end, if its record is written at once.

Agent and primary may wait for a processor, and the agent for its file system (`storage.patience`):
it reports no record that is not durable. Time in which the primary stood still does not count. An
epoch cannot be heard of before its end, except for the clocks' error.
"""


LAST_LINE = 1 << 62
"""No file has as many."""


def late_ms(view: RunView) -> int:
    """Most by which the primary of a run may hear of an epoch after its end."""
    return LATE_MS + round(view.config.storage.patience * 1000)


def check_witnesses(read: WriterRecords, traces: Traces, view: RunView) -> Iterator[Damage]:
    """Epochs of a file that are not as the primary heard of them, or that it did not hear of."""
    if _is_as_heard(read, traces, view):
        return
    heard = view.primary.witnessed.of(read.writer)
    epochs = {place.sequence: place for trace in traces.trials for place in trace.epochs}
    for sequence, witnesses in sorted(heard.items()):
        for again in witnesses[1:]:
            yield again.damage("witness", f"record {sequence} of {read.writer} is witnessed again", "once")
        yield from _heard(witnesses[0], epochs.get(sequence), read, view)
    yield from _unheard(epochs, heard, read.writer, view)


def _is_as_heard(read: WriterRecords, traces: Traces, view: RunView) -> bool:
    """True if the primary heard of just these epochs, in time, by a look at all together."""
    heard = view.primary.witnessed.columns_of(read.writer)
    said = _said(read, traces) if heard is not None else None
    if heard is None or said is None or len(heard) != len(said):
        return False
    times, trials, numbers, sequences = heard.rows[:, (1, 3, 4, 7)].T
    if not np.array_equal(said[:, 1:], np.column_stack([trials, numbers, sequences])) or np.any(
        np.diff(sequences) <= 0
    ):
        return False
    after_ms = times - said[:, 0] + view.ledger.offsets_ms.get(read.writer, 0)
    in_time = (after_ms >= -CLOCK_TOLERANCE_MS) & (after_ms <= late_ms(view))
    digests = [read.lines.hashes.get(sequence, "").encode() for sequence in sequences.tolist()]
    return bool(in_time.all()) and digests == heard.digests.tolist()


def _said(read: WriterRecords, traces: Traces) -> Numbers:
    """Time, trial, number and place of each epoch of a file."""
    if len(read.epochs):
        return read.epochs.whole[:, (TIME, TRIAL, EPOCH, PLACE)]
    epochs = [place for trace in traces.trials for place in trace.epochs]
    rows = [(place.time_ms, place.body.trial, place.body.epoch, place.sequence) for place in epochs]
    return np.array(rows, np.int64).reshape(-1, 4)


def _heard(
    witness: Placed[EpochWitnessed], epoch: Placed[EpochCompleted] | None, read: WriterRecords, view: RunView
) -> Iterator[Damage]:
    body = witness.body
    if epoch is None:
        found = "the record is not an epoch, or not there"
        yield Damage(read.file, body.sequence + 1, "witness", found, _as_heard(witness))
    elif (epoch.body.trial, epoch.body.epoch) != (body.trial, body.epoch):
        found = f"epoch {epoch.body.epoch} of trial {epoch.body.trial}"
        yield epoch.damage("witness", found, _as_heard(witness))
    elif read.lines.hashes.get(body.sequence) != body.digest:
        found = f"a record with the hash {read.lines.hashes.get(body.sequence)}"
        yield epoch.damage("witness", found, _as_heard(witness))
    else:
        ended_ms = view.corrected(read.writer, epoch.time_ms)
        after_ms = witness.time_ms - ended_ms
        most_ms = late_ms(view) + view.primary.paused_ms(ended_ms, witness.time_ms)
        if not -CLOCK_TOLERANCE_MS <= after_ms <= most_ms:
            found = f"epoch {body.epoch} of trial {body.trial} ends {after_ms} ms before the primary heard of it"
            yield epoch.damage("time", found, f"{-CLOCK_TOLERANCE_MS} to {most_ms} ms")


def _as_heard(witness: Placed[EpochWitnessed]) -> str:
    body = witness.body
    return f"epoch {body.epoch} of trial {body.trial}, with the hash {body.digest}, as {witness.file} line " \
           f"{witness.line} says"  # fmt: skip


def _unheard(
    epochs: dict[int, Placed[EpochCompleted]], heard: Witnessed, writer: str, view: RunView
) -> Iterator[Damage]:
    """Epochs that the primary did not hear of, unless it or the replica died before it could."""
    last = max(heard, default=-1)
    for sequence, place in sorted(epochs.items()):
        if sequence not in heard and (sequence < last or not _excused(place, writer, view)):
            found = f"epoch {place.body.epoch} of trial {place.body.trial} was not witnessed by the primary"
            yield place.damage("witness", found, "epoch_witnessed")


def _excused(place: Placed[EpochCompleted], writer: str, view: RunView) -> bool:
    """True if the primary may have missed the last epochs of a file.

    The run is in progress; the epoch came after the end; the replica was lost, at most
    `run.replica_silence` and `storage.patience` later; or the primary died, and another one
    followed.
    """
    end = view.ledger.run_ended
    time_ms = view.corrected(writer, place.time_ms)
    if end is None or time_ms > end.body.end_ms:
        return True
    wait_s = view.config.run.replica_silence + view.config.storage.patience
    silence_ms = round(wait_s * 1000) + CLOCK_TOLERANCE_MS
    replica, arrivals = replica_of(writer), view.primary.arrivals.get(writer, [])
    gone = (loss.time_ms - time_ms for loss in view.primary.losses if loss.body.replica == replica)
    if any(-CLOCK_TOLERANCE_MS <= later_ms <= silence_ms for later_ms in gone):
        return True
    files = [beginning.file for beginning in view.primary.beginnings]
    served = files.index(arrivals[-1].file) if arrivals else len(files)
    return any(time_ms <= beginning.time_ms + late_ms(view) for beginning in view.primary.beginnings[served + 1 :][:1])


def check_closing(trace: TrialTrace[Any], view: RunView) -> Iterator[Damage]:
    """A trial that did not end as the primary heard."""
    for closing in view.primary.closed.get(trace.trial, ())[:1]:
        how, until = closing.body.how, closing.body.sequence
        if closing.body.writer != trace.writer:
            if how != "lost" or trace.ended is not None:
                yield trace.started.damage("witness", f"trial {trace.trial} was trained by {trace.writer}",
                                           f"{closing.body.writer}, as {_place(closing)} says")  # fmt: skip
            continue
        outcome, place = _outcome(trace, until)
        if outcome not in _ALLOWED[how]:
            yield place.damage("witness", f"trial {trace.trial} {_WORDS[outcome]}",
                               f"it was closed as {how}, as {_place(closing)} says")  # fmt: skip


_ALLOWED = {
    "completed": {"ended"},
    "failed": {"failed"},
    "cancelled": {"cancelled"},
    # The run may stop the replica between the end of a trial and its report.
    "stopped": {"ended", "stopped", "open"},
    "lost": {"ended", "failed", "cancelled", "stopped", "open"},
}
_WORDS = {"ended": "ended by itself", "failed": "failed", "cancelled": "was cancelled", "stopped": "was stopped",
          "open": "did not end"}  # fmt: skip


def _outcome(trace: TrialTrace[Any], until: int | None) -> tuple[str, Placed[object]]:
    """How the file says that a trial ended, up to a record; and where."""
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
            yield Damage(read.file, None, "witness", f"the file ends with record {read.lines.count - 1}",
                         f"record {sequence} at least, as {_place(closing)} says")  # fmt: skip
        elif found != digest:
            yield Damage(read.file, sequence + 1, "witness", f"a record with the hash {found}",
                         f"{digest}, as {_place(closing)} says")  # fmt: skip


def check_unclosed(view: RunView) -> Iterator[Damage]:
    """Jobs that were not closed exactly once.

    The last job of a replica may be open if the primary was killed after the end.
    """
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
            witnesses = view.primary.witnessed.of(writer)
            first = min((places[0] for places in witnesses.values()), key=lambda place: place.line)
            yield first.damage("witness", f"epochs of {writer} are witnessed", "a replica_ready that names it")


def check_late(view: RunView) -> Iterator[Damage]:
    """Epochs that the primary heard of before it had issued their trial, or after it was closed."""
    files = {file.file: number for number, file in enumerate(view.primary.files)}
    if _none_is_late(view, files):
        return
    for sequences in map(view.primary.witnessed.of, view.primary.witnessed.writers()):
        for place in (witnesses[0] for _, witnesses in sorted(sequences.items())):
            trial, moment = place.body.trial, (files[place.file], place.line)
            job, closing = view.primary.issued.get(trial), view.primary.closed.get(trial)
            if job and moment < (files[job[0].file], job[0].line):
                yield place.damage(
                    "witness", f"epoch {place.body.epoch} of trial {trial} is witnessed", "its job before"
                )
            if closing and moment > (files[closing[0].file], closing[0].line):
                found = f"epoch {place.body.epoch} of trial {trial} is witnessed"
                yield place.damage("witness", found, f"none after its end, as {_place(closing[0])} says")


def _none_is_late(view: RunView, files: dict[str, int]) -> bool:
    """True if `check_late` finds nothing, by a look at all witnesses together."""
    witnessed = view.primary.witnessed
    if any(True for _ in witnessed.objects()):
        return False
    for file, columns in witnessed.files:
        trials, places = np.unique(columns.rows[:, 3], return_inverse=True)
        spans = [_lines_of(view, files, trial, file) for trial in trials.tolist()]
        first, last = np.array(spans, np.int64).reshape(-1, 2)[places].T
        lines = columns.rows[:, 0] + 1
        if (lines < first).any() or (lines > last).any():
            return False
    return True


def _lines_of(view: RunView, files: dict[str, int], trial: int, file: str) -> tuple[int, int]:
    """The first and last line of a file at which an epoch of a trial may be heard of."""
    job, closing = view.primary.issued.get(trial), view.primary.closed.get(trial)
    first, last = -1, LAST_LINE
    if job and files[job[0].file] >= files[file]:
        first = job[0].line if job[0].file == file else LAST_LINE
    if closing and files[closing[0].file] <= files[file]:
        last = closing[0].line if closing[0].file == file else -1
    return first, last
