"""The start of a primary: at the beginning of a run, or from the records of an interrupted one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from aiperf.cli.lines import warn
from aiperf.clock import Clock
from aiperf.config.settings import RunConfig
from aiperf.errors import StorageError, UsageError
from aiperf.facts import Stamped
from aiperf.files import remove_temporaries
from aiperf.records.bodies import JobIssued, RunReleased, RunResumed, TrialClosed, TrialFailed, TrialStarted
from aiperf.records.cursor import Cursor
from aiperf.records.damage import Damage
from aiperf.records.digest.compiled import compile_entries
from aiperf.records.digest.entries import Entry
from aiperf.records.entries import TrialLedger
from aiperf.records.history_files import Batch, HistoryReader
from aiperf.records.ledger import Ledger
from aiperf.records.record import Record
from aiperf.run_directory.claim import TOUCH_INTERVAL_S, Claim
from aiperf.run_directory.disk import PatientDisk
from aiperf.run_directory.paths import RunPaths
from aiperf.storage.durable import refresh
from aiperf.storage.error_texts import why_not_written
from aiperf.storage.patience import PATIENCE, Patience, with_patience
from primary.display.state import Earlier
from primary.work import WorkList, open_work

START_PATIENCE_S = 10.0
"""Longest wait for the directory of a run that begins or is resumed: a wrong one should not take
long to say so.
"""

DONE = {"deadline": "reached its deadline", "completed": "completed its work"}
"""Ends after which nothing is left, and what is said of them."""


def _say_the_wait(text: str) -> None:
    warn(f"aiperf: {text}")


def take_claim(paths: RunPaths, config: RunConfig, clock: Clock) -> Claim:
    """Take a run, on storage that may refuse for a while.

    Raises RunHeldError, and StorageError if it refuses for longer.
    """
    patience = Patience(min(START_PATIENCE_S, config.storage.patience))
    try:
        claim = Claim.acquire(paths.claims, clock, PatientDisk(patience), show=_say_the_wait)
    except OSError as error:
        found = f"the claim in {why_not_written(paths.claims, error)}; then start the run: aiperf resume {paths.root}"
        raise StorageError([found]) from error
    patience.hurry()  # from here on others wait, too
    return claim


@dataclass(frozen=True)
class Start:
    """Facts that a primary starts from."""

    claim: Claim
    work: WorkList
    released_ms: int | None = None
    """UTC of the release, for a resumed run that keeps its clock."""
    resumption: RunResumed | None = None
    """The first record to write."""
    closings: tuple[TrialClosed, ...] = ()
    """The records to write after it: of the trials that were open when the old primary died."""
    digest: tuple[Entry, ...] = ()
    """The entries that the digest begins with: of all trials so far."""
    earlier: Mapping[int, Earlier] = field(default_factory=dict)
    """Work of each replica, as far as it counts."""

    def rest_s(self, config: RunConfig, clock: Clock) -> float:
        """Seconds to the deadline; the whole duration before the release."""
        gone_ms = 0 if self.released_ms is None else clock.utc_ms() - self.released_ms
        return config.run.duration - gone_ms / 1000


def begin_or_resume(paths: RunPaths, config: RunConfig, claim: Claim, now_ms: int) -> Start:
    """The start of a run without records of a primary, else of its rest.

    Raises UsageError as resuming does.
    """
    with PATIENCE.set(min(START_PATIENCE_S, config.storage.patience)):
        began = paths.history_files("primary")
    if began:
        return prepare_resumption(paths, config, claim, False, now_ms)
    return Start(claim, open_work(config))


def prepare_resumption(paths: RunPaths, config: RunConfig, claim: Claim, new_clock: bool, now_ms: int) -> Start:
    """The start of the rest of a run; `now_ms` is the time of day, UTC.

    Its records close the trials that were in progress, which the old primary could not.

    Raises UsageError if its records are damaged, or if its deadline has passed, whether it was
    reached or not: no time is left that could be resumed. A new clock starts another one.
    """
    with PATIENCE.set(min(START_PATIENCE_S, config.storage.patience)):
        found = _Found.read(paths, claim)
    ledger, cursor = found.ledger, found.cursor
    if not new_clock:
        _check_deadline(paths, config, ledger, now_ms)
    # Records outlive claims: if someone removed the claims, the next number must still be above
    # that of every primary that has written.
    claim.claim_above(ledger.fences.claim)
    if not claim.alone:
        ledger.fences.leave_trials_out()
    heads = {name: (found.ends.get(name, place), digest) for name, (place, digest) in cursor.heads.items()}
    # A file that was cut before its first record is not named: nothing of it counts.
    until = Cursor({name: head for name, head in heads.items() if head[0] >= 0})
    resumption = RunResumed(new_clock=new_clock, claim=claim.number, until=until.text)
    # From here on trials that were in progress count as dead, as for every later reader.
    # One millisecond after all records: everything that was in progress began before it.
    ledger.add([Record("resumption", 0, ledger.last_ms + 1, 0, RunResumed(new_clock=new_clock))])
    released = _released(ledger)
    closings = tuple(_closings(ledger, found.witnessed, cursor))
    digest = tuple(compile_entries(ledger))
    released_ms, earlier = (None, {}) if released is None else (released.time_ms, _earlier(ledger))
    return Start(claim, open_work(config, ledger), released_ms, resumption, closings, digest, earlier)


def _released(ledger: Ledger) -> Stamped[RunReleased] | None:
    """The release of the clock that runs; None before it, also if a new clock was asked for."""
    asked_ms = max((item.time_ms for item in ledger.resumptions if item.body.new_clock), default=-1)
    released = ledger.released
    return released if released is not None and released.time_ms > asked_ms else None


def _earlier(ledger: Ledger) -> dict[int, Earlier]:
    """Work of each replica: trials that ended well, and the best accuracy of an epoch."""
    found: dict[int, Earlier] = {}
    for trial in ledger.trials.values():
        if trial.begun is not None:
            trials, best = found.get(trial.begun.replica, Earlier())
            done = trial.ended is not None and trial.ended.body.reason != "stopped"
            accuracies = [accuracy for accuracy in (best, trial.accuracy) if accuracy is not None]
            found[trial.begun.replica] = Earlier(trials + done, max(accuracies, default=None))
    return found


@dataclass(frozen=True)
class _Found:
    """Facts of an interrupted run, as its records give them."""

    ledger: Ledger
    cursor: Cursor
    witnessed: frozenset[int]
    """Trials whose epochs primaries witness."""
    ends: dict[str, int]
    """The last record that counts, of files that have more."""

    @classmethod
    def read(cls, paths: RunPaths, claim: Claim) -> Self:
        """Read them. Raises UsageError if they are damaged, and OSError."""
        remove_temporaries(paths.root)
        # What this node does not see is cut off: a replica's new file on another node would be.
        with_patience(lambda: refresh(paths.history), paths.history)
        reader, ledger, damages = HistoryReader(paths), Ledger(latest_progress_only=True), list[Damage]()
        witnessed, ends = set[int](), dict[str, int]()
        for batch in reader.read_files():
            # To read a long history may take longer than `SILENCE_S`, after which another primary
            # takes a run.
            claim.touch(TOUCH_INTERVAL_S)
            records = _before_loss(_of_known_jobs(batch, ledger, ends), ledger, ends)
            ledger.add(records)
            damages += batch.damages
            witnessed.update(
                record.body.trial
                for record in records
                # Records without a link are of a version whose primaries witnessed nothing.
                if isinstance(record.body, JobIssued) and record.previous and not ledger.fences.drops(record)
            )
        if damages:
            raise UsageError(
                f"{paths.root}: {len(damages)} damaged record(s), such as {damages[0]}; "
                f"list all of them with: aiperf verify {paths.root}"
            )
        return cls(ledger, reader.cursor(), frozenset(witnessed), ends)


def _of_known_jobs(batch: Batch, ledger: Ledger, ends: dict[str, int]) -> tuple[Record, ...]:
    """The records of a file up to the first trial that no primary has issued, as far as was read.

    A primary that still works may have issued one since its own file was read. Notes in `ends` the
    last record of a file that is cut there.
    """
    for number, record in enumerate(batch.records):
        if isinstance(record.body, TrialStarted | TrialFailed) and record.previous is not None:
            known = ledger.trials.get(record.body.trial)
            if known is None or known.issued is None:
                ends[record.writer] = record.sequence - 1
                return batch.records[:number]
    return batch.records


def _before_loss(records: tuple[Record, ...], ledger: Ledger, ends: dict[str, int]) -> tuple[Record, ...]:
    """The records of a file without those that its replica made after its loss, noted in `ends`."""
    for number, record in enumerate(records):
        if ledger.fences.is_late(record):
            ends[record.writer] = record.sequence - 1
            return records[:number]
    return records


def _closings(ledger: Ledger, witnessed: frozenset[int], cursor: Cursor) -> Iterator[TrialClosed]:
    """Closings of the trials that no primary has closed, of those that were witnessed at all.

    They name the last record that the trial's replica had written, as it is read now: the old
    primary had perhaps not heard of it.
    """
    for number in sorted(witnessed):
        trial = ledger.trials[number]
        if trial.closed is None:
            writer = trial.writer or _writer_of(ledger, trial)
            sequence, digest = cursor.heads.get(writer, (None, None))
            yield TrialClosed(trial=number, how="lost", writer=writer, sequence=sequence, digest=digest)


def _writer_of(ledger: Ledger, trial: TrialLedger) -> str:
    """The latest file of the replica that a trial was issued to and did not start."""
    ready = ledger.replica(trial.issued.replica).ready if trial.issued is not None else None
    return ready.writer if ready is not None else ""


def _check_deadline(paths: RunPaths, config: RunConfig, ledger: Ledger, now_ms: int) -> None:
    reason = ledger.run_ended.body.reason if ledger.run_ended is not None else None
    if reason in DONE:
        raise UsageError(f"{paths.root}: the run has {DONE[reason]}; there is nothing to resume")
    if (released := _released(ledger)) is None:
        return
    # run.json may have been edited since the release: the shorter duration counts.
    planned_ms = min(released.body.duration_ms, round(config.run.duration * 1000))
    late_s = (now_ms - released.time_ms - planned_ms) / 1000
    if late_s >= 0:
        raise UsageError(
            f"{paths.root}: the deadline passed {late_s:.0f} s ago, while the run was interrupted; no time is left to "
            f"resume (its report: aiperf report {paths.root}; with --new-clock it starts again, unofficially)"
        )
