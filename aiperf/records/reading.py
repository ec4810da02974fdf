"""Parts of a run from its history list, for callers that look once."""

from aiperf.records.bodies import EpochCompleted
from aiperf.records.history_files import HistoryReader, decode_lines, read_from
from aiperf.records.ledger import Ledger
from aiperf.run_directory.paths import RunPaths


def read_ledger(paths: RunPaths) -> Ledger:
    """Fold all intact records, of progress only each trial's latest. Damage is for `verify`."""
    ledger = Ledger(latest_progress_only=True)
    for batch in HistoryReader(paths).read_files():
        ledger.add(batch.records)
    return ledger


def states_of(paths: RunPaths, trial: int, replica: int) -> tuple[str, ...]:
    """The hashes of the states that were kept after epochs of a trial of a replica, by its records.

    Raises OSError.
    """
    found: list[str] = []
    for file in paths.history_files(f"replica-{replica:04d}"):
        lines = enumerate(read_from(file).split(b"\n")[:-1], start=1)
        batch = decode_lines(file.name, [(number, line) for number, line in lines if _STATE in line])
        bodies = (record.body for record in batch.records)
        found += [
            body.state for body in bodies if isinstance(body, EpochCompleted) and body.trial == trial and body.state
        ]
    return tuple(found)


_STATE = b'"state":"'
"""In the line of each epoch after which a state was kept: of a long file few lines are decoded."""
