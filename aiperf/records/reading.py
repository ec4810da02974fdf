"""The state of a run from its whole history list, for callers that look once."""

from __future__ import annotations

from aiperf.records.files import HistoryReader
from aiperf.records.ledger import Ledger
from aiperf.run_directory.paths import RunPaths


def read_ledger(paths: RunPaths) -> Ledger:
    """Fold all intact records, of progress only each trial's latest. Damage is for `verify`."""
    ledger = Ledger(latest_progress_only=True)
    for batch in HistoryReader(paths).read_files():
        ledger.add(batch.records)
    return ledger
