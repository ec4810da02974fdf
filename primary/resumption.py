"""Where a primary begins: at the start of a run, or where a broken-off run stands by its records."""

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
from primary.worklist import WorkList, from_ledger


@dataclass(frozen=True)
class Start:
    """What a primary starts with."""

    claim: Claim
    work: WorkList
    released_ms: int | None = None
    """The t0 of a run that goes on."""
    resumption: RunResumed | None = None
    """To be recorded first."""


def begin_or_go_on(paths: RunPaths, config: RunConfig, claim: Claim) -> Start:
    """The start of a run without records of a primary, else where it stands. Raises UsageError as resuming does."""
    if paths.history_files("primary"):
        return prepare_resumption(paths, config, claim, new_clock=False)
    return Start(claim, WorkList(config))


def prepare_resumption(paths: RunPaths, config: RunConfig, claim: Claim, new_clock: bool) -> Start:
    """Where a run goes on. Raises UsageError where it has reached its deadline, or its records are damaged."""
    remove_temporaries(paths.root)
    ledger, damages = Ledger(latest_progress_only=True), list[Damage]()
    for batch in HistoryReader(paths).read_files():
        ledger.add(batch.records)
        damages += batch.damages
    if damages:
        raise UsageError(
            f"{paths.root}: {len(damages)} damaged record(s), such as {damages[0]}; "
            f"look at all of them with: aiperf verify {paths.root}"
        )
    if ledger.run_ended is not None and ledger.run_ended.body.reason == "deadline" and not new_clock:
        raise UsageError(f"{paths.root}: the run has reached its deadline; there is nothing to resume")
    resumption = RunResumed(new_clock=new_clock)
    # As the fold will see it: what was in progress has died.
    ledger.add([Record("resumption", 0, ledger.last_ms + 1, 0, resumption)])
    released_ms = ledger.released.time_ms if ledger.released is not None and not new_clock else None
    return Start(claim, from_ledger(config, ledger), released_ms, resumption)
