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


def begin_or_resume(paths: RunPaths, config: RunConfig, claim: Claim) -> Start:
    """The start of a run without records of a primary, else of its rest.

    Raises UsageError as resuming does.
    """
    if paths.history_files("primary"):
        return prepare_resumption(paths, config, claim, new_clock=False)
    return Start(claim, open_work(config))


def prepare_resumption(paths: RunPaths, config: RunConfig, claim: Claim, new_clock: bool) -> Start:
    """The start of the rest of a run.

    Raises UsageError if it has reached its deadline or its records are damaged.
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
    if ledger.run_ended is not None and ledger.run_ended.body.reason == "deadline" and not new_clock:
        raise UsageError(f"{paths.root}: the run has reached its deadline; there is nothing to resume")
    resumption = RunResumed(new_clock=new_clock)
    # From here on trials that were in progress count as dead, as for every later reader.
    ledger.add([Record("resumption", 0, ledger.last_ms + 1, 0, resumption)])
    released_ms = ledger.released.time_ms if ledger.released is not None and not new_clock else None
    return Start(claim, open_work(config, ledger), released_ms, resumption)
