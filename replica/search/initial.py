"""The training of the initial architecture: one at a time, until one has completed an epoch."""

from __future__ import annotations

from aiperf.records.entries import TrialLedger
from aiperf.records.ledger import Ledger


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
