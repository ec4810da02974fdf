"""Parts of a run from its history list, for callers that look once."""

from collections.abc import Callable, Mapping
from pathlib import Path

from aiperf.records.bodies import EpochCompleted
from aiperf.records.fencing import Fences
from aiperf.records.history_files import HistoryReader, decode_lines, read_from
from aiperf.records.ledger import Ledger
from aiperf.records.record import Record
from aiperf.run_directory.paths import RunPaths


def read_ledger(paths: RunPaths) -> Ledger:
    """Fold all intact records, of progress only each trial's latest. Damage is for `verify`."""
    ledger = Ledger(latest_progress_only=True)
    for batch in HistoryReader(paths).read_files():
        ledger.add(batch.records)
    return ledger


def states_of(paths: RunPaths, replicas: Mapping[int, int]) -> tuple[str, ...]:
    """The hashes of the states that were kept after epochs that count, by the records of replicas.

    `replicas` are those of the trials that are asked for. Raises OSError.
    """
    fences = Fences()
    for file in paths.history_files("primary"):
        fences.learn(_records(file, lambda line: _WITNESSED not in line))
    found: list[str] = []
    for replica in {*replicas.values()}:
        for file in paths.history_files(f"replica-{replica:04d}"):
            for record in _records(file, lambda line: _STATE in line):
                body = record.body
                if isinstance(body, EpochCompleted) and body.state and replicas.get(body.trial) == replica:
                    found += [] if fences.drops(record) else [body.state]
    return tuple(found)


_STATE, _WITNESSED = b'"state":"', b'"type":"epoch_witnessed"'
"""In the line of each epoch after which a state was kept, and in most of a primary's lines: of long
files few lines are decoded.
"""


def _records(file: Path, wanted: Callable[[bytes], bool]) -> tuple[Record, ...]:
    lines = enumerate(read_from(file).split(b"\n")[:-1], start=1)
    return decode_lines(file.name, [(number, line) for number, line in lines if wanted(line)]).records
