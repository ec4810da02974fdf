"""The trials of a run that a search knows, from a digest or from the raw records of all writers.

By a digest a result is known when the digest says so. Its entries are in the order of the primary,
so that no times are compared: a trial is in progress from the entry that it began to the one that
it is over. Runs and prefixes of runs without a digest have the raw records only.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Literal, Protocol

from msgspec.structs import replace

from aiperf.errors import RecordDamagedError
from aiperf.records.bodies import RunResumed, TrialEnded, TrialStarted
from aiperf.records.cursor import Cursor
from aiperf.records.digest.entries import Began, How, Over, head_name
from aiperf.records.digest.reader import DigestReader, Line
from aiperf.records.entries import TrialLedger
from aiperf.records.fencing import PRIMARY
from aiperf.records.history_files import Batch
from aiperf.records.ledger import Ledger
from aiperf.records.lineage import joined, qualities_of_training, trial_and_earlier
from aiperf.records.record import decode_record
from aiperf.run_directory.paths import RunPaths
from aiperf.storage.patience import with_patience
from replica.search.outcomes import Outcomes, OutcomeTable, Start, TrialOutcome


class KnownTrials(Protocol):
    """The knowledge of a run's trials, which only `read` changes, and which only grows.

    Its methods are for one thread at a time.
    """

    def read(self) -> None:
        """Take in what is new. Raises OSError, and DigestDamagedError if it cannot be relied on."""

    def outcomes(self) -> OutcomeTable:
        """The outcomes of all trials."""

    def cursor(self) -> Cursor:
        """The place up to which was read."""

    def is_current(self, cursor: Cursor, replica: int) -> bool:
        """True if an earlier cursor knows the last trial that a replica has started."""

    def is_superseded(self, claim: int) -> bool:
        """True if a primary with a higher claim has recorded anything."""

    def started(self, trial: int) -> Start | None:
        """The start of a trial, if it has started."""

    def mentions(self, trial: int) -> bool:
        """True if anything is known of a trial beyond its job."""

    def initial_is_due(self, architecture: str, trial: int) -> bool:
        """True if a trial is to train the initial architecture, of this hash.

        It is not if a trial of it has completed an epoch or is in progress, nor as long as an
        earlier trial, which may choose it, has not started.
        """

    def qualities(self, trial: int) -> dict[int, float]:
        """The quality after each epoch of a training, by epoch, with those of trials it resumes.

        An epoch without a quality has 0.
        """


MOST_LINE_BYTES = 8 << 20
"""Most bytes of a primary's first record, whose cursor names all writers."""


_REASONS: dict[How, Literal["completed", "early_stop", "stopped"]] = {
    "completed": "completed",
    "early_stop": "early_stop",
    "stopped": "stopped",
}
"""Reasons in records by the ends in a digest that are not failures."""


class Lines(Protocol):
    """A source of entries: the segments of a run's digest, or entries read before."""

    primary: str

    def read_new(self) -> Iterable[Line]:
        """The entries since the last call."""

    def cursor(self) -> Cursor:
        """The place up to which was read."""


@dataclass(slots=True)
class _Trial:
    """A trial as its entries show it."""

    began: Began | None = None
    over: Over | None = None
    lost: bool = False

    @property
    def measured(self) -> dict[int, float | None]:
        """The qualities of the trial's own epochs, by epoch."""
        return dict(zip(self.over.epochs, self.over.qualities, strict=True)) if self.over is not None else {}


class DigestedTrials:
    """The trials of a digest."""

    def __init__(self, lines: Lines, paths: RunPaths) -> None:
        self._lines = lines
        self._paths = paths
        self._table = OutcomeTable()
        self._trials: dict[int, _Trial] = {}
        self._by_architecture: dict[str, list[int]] = {}
        self._resumed_by: dict[int, list[int]] = {}
        self._last_starts: dict[int, int] = {}
        """The number of the entry of the last start, by replica."""
        self._epochs: dict[tuple[int, ...], tuple[int, ...]] = {}
        """Numbers of epochs, which are the same for most trials, each once in memory."""

    def read(self) -> None:
        """Take in new entries. Raises OSError, DigestDamagedError."""
        for line in self._lines.read_new():
            if isinstance(line.entry, Began):
                self._begin(line.entry, line.number)
            elif isinstance(line.entry, Over):
                self._end(line.entry)

    def outcomes(self) -> OutcomeTable:
        """The outcomes of all trials."""
        return self._table

    def cursor(self) -> Cursor:
        """The place up to which was read."""
        return self._lines.cursor()

    def is_current(self, cursor: Cursor, replica: int) -> bool:
        """See `KnownTrials`."""
        name = head_name(self._lines.primary)
        if cursor.heads.keys() != {name}:
            return False
        place, known = cursor.heads[name][0], self._lines.cursor().heads.get(name, (-1, ""))[0]
        return self._last_starts.get(replica, -1) <= place <= known

    def is_superseded(self, claim: int) -> bool:
        """See `KnownTrials`."""
        return any(claim < later for later in _later_claims(self._paths, self._lines.primary))

    def started(self, trial: int) -> Start | None:
        """The start of a trial, if it has started."""
        known = self._trials.get(trial)
        return known.began if known is not None else None

    def mentions(self, trial: int) -> bool:
        """See `KnownTrials`."""
        return trial in self._trials

    def initial_is_due(self, architecture: str, trial: int) -> bool:
        """See `KnownTrials`."""
        for number in self._by_architecture.get(architecture, ()):
            known = self._trials[number]
            if known.over is None or known.over.epochs:
                return False
        return trial > 0 and all(earlier in self._trials for earlier in range(1, trial))

    def qualities(self, trial: int) -> dict[int, float]:
        """See `KnownTrials`."""
        return {number: quality or 0.0 for number, quality in self._of_training(trial).items()}

    def _begin(self, entry: Began, number: int) -> None:
        trial = self._trials.setdefault(entry.trial, _Trial())
        if trial.began is not None:
            return
        trial.began = entry
        self._by_architecture.setdefault(entry.architecture, []).append(entry.trial)
        self._last_starts[entry.replica] = number
        if entry.resumes is not None:
            self._resumed_by.setdefault(entry.resumes, []).append(entry.trial)
        self._renew(entry.trial)

    def _end(self, entry: Over) -> None:
        trial = self._trials.setdefault(entry.trial, _Trial())
        trial.lost = trial.lost or entry.how == "lost"
        if trial.over is None:
            # Many trials end alike: those with equal epochs share one tuple.
            # The first end stays: a `lost` after `stopped` says nothing new but that.
            trial.over = replace(entry, epochs=self._epochs.setdefault(entry.epochs, entry.epochs))
        self._renew(entry.trial)

    def _renew(self, trial: int) -> None:
        """Bring the outcome of a trial, and of those that resume it, up to date."""
        waiting, seen = [trial], {trial}
        while waiting:
            # The accuracy of a training counts the epochs of the trials that it resumes.
            later = set(self._resumed_by.get(waiting.pop(), ())) - seen
            seen |= later
            waiting += later
        for number in sorted(seen):
            known = self._trials[number]
            if known.began is not None:
                self._table.put(self._outcome(number, known, known.began))

    def _outcome(self, number: int, trial: _Trial, began: Began) -> TrialOutcome:
        over, end = trial.over, None
        if over is not None and (reason := _REASONS.get(over.how)) is not None:
            end = TrialEnded(trial=number, reason=reason, predicted_accuracy=over.predicted)
        failed = over is not None and over.how == "failed"
        measured = (quality for quality in self._of_training(number).values() if quality is not None)
        return TrialOutcome(
            trial=number,
            started=began,
            accuracy=max(measured, default=None),
            end=end,
            ended_badly=trial.lost or failed,
            out_of_memory=failed and over is not None and over.kind == "out_of_memory",
        )

    def _of_training(self, trial: int) -> dict[int, float | None]:
        """The epochs that made a trial's weights (`aiperf.records.lineage`)."""
        return joined([known.measured for known in reversed(list(self._chain(trial)))])

    def _chain(self, trial: int) -> Iterator[_Trial]:
        """A trial, the trial that it resumes, and so on, if the architecture is the same."""
        architecture = None
        for number in trial_and_earlier(trial, self._resumed):
            known = self._trials.get(number)
            if known is None or known.began is None or architecture not in (None, known.began.architecture):
                return
            yield known
            architecture = known.began.architecture

    def _resumed(self, trial: int) -> int | None:
        known = self._trials.get(trial)
        return known.began.resumes if known is not None and known.began is not None else None


def _later_claims(paths: RunPaths, primary: str) -> Iterator[int]:
    """Yield the claims of later primaries that have recorded anything.

    Files are opened by name, number after number: the folder has a file of each of thousands of
    writers, and its listing may be stale on NFS.
    """
    start = int(primary.removeprefix(PRIMARY)) if primary.removeprefix(PRIMARY).isdecimal() else 0
    for later in count(start + 1):
        file = paths.history_file(f"{PRIMARY}{later}")
        try:
            line = with_patience(partial(_first_line, file), file)
        except FileNotFoundError:
            return
        try:
            body = decode_record(line).body if line.endswith(b"\n") else None
        except RecordDamagedError:
            continue
        if isinstance(body, RunResumed) and body.claim is not None:
            yield body.claim


def _first_line(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.readline(MOST_LINE_BYTES)


def of_digest(paths: RunPaths, primary: str) -> DigestedTrials:
    """Make the trials of the digest that a primary writes."""
    return DigestedTrials(DigestReader(paths, primary), paths)


def is_due(ledger: Ledger, architecture: str, trial: int) -> bool:
    """True if trial `trial` is to train the initial architecture, of hash `architecture`.

    It is not if a trial of it has completed an epoch or is in progress, nor as long as an earlier
    trial, which may choose it, has not started: of trials that are planned at the same moment the
    first one takes it. Trials are numbered from 1 without gaps; 0 stands for an unknown number.
    """
    for entry in ledger.trials.values():
        if entry.started is not None and entry.started.architecture == architecture:
            in_progress = entry.ended is None and entry.failed is None and ledger.died_ms(entry) is None
            if entry.epochs or in_progress:
                return False
    return trial > 0 and not any(_may_choose(ledger, earlier) for earlier in range(1, trial))


def _may_choose(ledger: Ledger, trial: int) -> bool:
    """True if a trial has not started but may, or is not recorded yet."""
    entry = ledger.trials.get(trial)
    if entry is None:
        return True
    if entry.issued is None or entry.issued.point > 0 or entry.started is not None or entry.failed is not None:
        return False
    return not _is_gone(ledger, entry, entry.issued.replica)


def _is_gone(ledger: Ledger, trial: TrialLedger, replica: int) -> bool:
    """True if a replica was lost, or was given another job since: it has one at a time."""
    known = ledger.replicas.get(replica)
    if known is not None and known.lost is not None:
        return True
    later = (other.issued for number, other in ledger.trials.items() if number > trial.trial)
    return any(issued is not None and issued.replica == replica for issued in later)


log = logging.getLogger(__name__)


class Source(Protocol):
    """A source of records: the files of a run, or records that were read before."""

    def read_files(self) -> Iterator[Batch]:
        """Yield records and damages since the last call, writer by writer."""

    def cursor(self) -> Cursor:
        """The place up to which every writer's records were read."""


class _LastStarts(dict[int, tuple[int, str, int]]):
    """The last trial by replica, with the writer and the number of its start."""

    def note(self, batch: Batch) -> None:
        """Take in new records."""
        for record in batch.records:
            if isinstance(record.body, TrialStarted):
                start = (record.body.trial, record.writer, record.sequence)
                # Files are read writer by writer: the last start read need not be the last one
                # made. Trial numbers are issued in order.
                self[record.body.replica] = max(start, self.get(record.body.replica, start))


class RecordedTrials:
    """The trials of the raw records."""

    def __init__(self, source: Source) -> None:
        self._source = source
        # The search ignores progress inside epochs, and there are millions of reports of it.
        self._ledger = Ledger(latest_progress_only=True)
        self._outcomes = Outcomes(self._ledger)
        self._last_starts = _LastStarts()

    def read(self) -> None:
        """Take in new records; damaged ones are logged and left out. Raises OSError."""
        # File by file: if one cannot be read, what was read of the others is not lost.
        for batch in self._source.read_files():
            self._ledger.add(batch.records)
            self._outcomes.note(batch.records)
            self._last_starts.note(batch)
            for damage in batch.damages:
                log.error("damaged record in the history list: %s", damage)

    def outcomes(self) -> OutcomeTable:
        """The outcomes of all trials."""
        self._outcomes.renew()
        return self._outcomes

    def cursor(self) -> Cursor:
        """The place up to which was read."""
        return self._source.cursor()

    def is_current(self, cursor: Cursor, replica: int) -> bool:
        """See `KnownTrials`."""
        known, last = self._source.cursor().heads, self._last_starts.get(replica)
        if any(writer not in known or place > known[writer][0] for writer, (place, _) in cursor.heads.items()):
            return False
        return last is None or cursor.heads.get(last[1], (-1, ""))[0] >= last[2]

    def is_superseded(self, claim: int) -> bool:
        """See `KnownTrials`."""
        return claim < self._ledger.fences.claim

    def started(self, trial: int) -> Start | None:
        """The start of a trial, if it has started."""
        entry = self._ledger.trials.get(trial)
        return entry.started if entry is not None else None

    def mentions(self, trial: int) -> bool:
        """See `KnownTrials`."""
        entry = self._ledger.trials.get(trial, TrialLedger(trial))
        return entry != TrialLedger(trial, issued=entry.issued, issued_ms=entry.issued_ms)

    def initial_is_due(self, architecture: str, trial: int) -> bool:
        """See `KnownTrials`."""
        return is_due(self._ledger, architecture, trial)

    def qualities(self, trial: int) -> dict[int, float]:
        """See `KnownTrials`."""
        return qualities_of_training(self._ledger, trial)
