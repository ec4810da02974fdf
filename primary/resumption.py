"""The start of a primary: at the beginning of a run, or from the records of an interrupted one."""

from __future__ import annotations

from dataclasses import dataclass

from aiperf.config.settings import RunConfig
from aiperf.errors import UsageError
from aiperf.files import remove_temporaries
from aiperf.history.files import Damage, HistoryReader
from aiperf.history.ledger import Ledger
from aiperf.history.records import Record, RunResumed
from aiperf.run_directory.claim import Claim
from aiperf.run_directory.paths import RunPaths
from primary.work import WorkList, open_work


@dataclass(frozen=True)
class Start:
    """Everything that a primary starts from."""

    claim: Claim
    work: WorkList
    released_ms: int | None = None
    """UTC of the release, for a resumed run that keeps its clock."""
    resumption: RunResumed | None = None
    """The first record to write."""


def begin_or_resume(paths: RunPaths, config: RunConfig, claim: Claim, now_ms: int) -> Start:
    """The start of a run without records of a primary, else of its rest.

    Raises UsageError as resuming does.
    """
    if paths.history_files("primary"):
        return prepare_resumption(paths, config, claim, False, now_ms)
    return Start(claim, open_work(config))


def prepare_resumption(paths: RunPaths, config: RunConfig, claim: Claim, new_clock: bool, now_ms: int) -> Start:
    """The start of the rest of a run; `now_ms` is the time of day, UTC.

    Raises UsageError if its records are damaged, or if its deadline has passed, whether it was
    reached or not: no time is left that could be resumed. A new clock starts another one.
    """
    remove_temporaries(paths.root)
    ledger, damages = Ledger(latest_progress_only=True), list[Damage]()
    for batch in HistoryReader(paths).read_files():
        ledger.add(batch.records)
        damages += batch.damages
    if damages:
        raise UsageError(
            f"{paths.root}: {len(damages)} damaged record(s), such as {damages[0]}; "
            f"list all of them with: aiperf verify {paths.root}"
        )
    if not new_clock:
        _check_deadline(paths, config, ledger, now_ms)
    resumption = RunResumed(new_clock=new_clock)
    # From here on trials that were in progress count as dead, as for every later reader.
    ledger.add([Record("resumption", 0, ledger.last_ms + 1, 0, resumption)])
    released_ms = ledger.released.time_ms if ledger.released is not None and not new_clock else None
    return Start(claim, open_work(config, ledger), released_ms, resumption)


def _check_deadline(paths: RunPaths, config: RunConfig, ledger: Ledger, now_ms: int) -> None:
    if ledger.run_ended is not None and ledger.run_ended.body.reason == "deadline":
        raise UsageError(f"{paths.root}: the run has reached its deadline; there is nothing to resume")
    if ledger.released is None:
        return
    planned_ms = min(ledger.released.body.duration_ms, round(config.run.duration * 1000))
    late_s = (now_ms - ledger.released.time_ms - planned_ms) / 1000
    if late_s >= 0:
        raise UsageError(
            f"{paths.root}: the deadline passed {late_s:.0f} s ago, while the run was interrupted; no time is left to "
            f"resume (its report: aiperf report {paths.root}; with --new-clock it starts again, unofficially)"
        )
