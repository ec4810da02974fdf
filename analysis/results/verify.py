"""Check of a whole run directory: everything damaged, missing or foreign, all at once."""

from __future__ import annotations

import json
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from aiperf.errors import AiperfError
from aiperf.history.files import HistoryReader
from aiperf.history.ledger import Ledger, when
from aiperf.history.records import Record
from aiperf.network.json_files import read_architecture
from aiperf.run_directory.manifest import read_manifest
from aiperf.run_directory.paths import RunPaths, belongs

TEMPORARY = re.compile(r"(.*/)?\.[^/]+\.(tmp|part)")


def verify(paths: RunPaths) -> list[str]:
    """All problems, one line each. Raises RunDirectoryError if it is not a run at all."""
    read_manifest(paths)
    reader = HistoryReader(paths)
    batch = reader.read_new()
    ledger = Ledger()
    ledger.add(batch.records)
    return [
        *map(str, batch.damages),
        *(f"{name}: ends in an unfinished line" for name in reader.unfinished()),
        *(str(conflict) for conflict in ledger.conflicts),
        *_gaps(paths, batch.records),
        *_missing_writers(paths, ledger),
        *_architectures(paths, ledger),
        *_archives(paths),
        *_foreign(paths),
    ]


def _gaps(paths: RunPaths, records: tuple[Record, ...]) -> Iterator[str]:
    """Missing sequence numbers: lines that were removed."""
    seen: dict[str, set[int]] = defaultdict(set)
    for record in records:
        seen[record.writer].add(record.sequence)
    for writer, numbers in sorted(seen.items()):
        missing = sorted(set(range(max(numbers) + 1)) - numbers)
        if missing:
            name = paths.history_file(writer).name
            yield f"{name}: {len(missing)} record(s) are missing, the first is number {missing[0]}"


def _missing_writers(paths: RunPaths, ledger: Ledger) -> Iterator[str]:
    """Missing files of writers that the primary's records name."""
    for replica in ledger.replicas.values():
        for arrival in sorted(replica.arrivals, key=when):
            file = paths.history_file(arrival.body.writer)
            if not file.exists():
                yield f"{file.name}: the history of replica {replica.replica} is missing"


def _architectures(paths: RunPaths, ledger: Ledger) -> Iterator[str]:
    named = {trial.started.architecture for trial in ledger.trials.values() if trial.started is not None}
    for name in sorted(named):
        file = paths.architecture(name)
        try:
            found = read_architecture(file).hash
        except (AiperfError, OSError) as error:
            yield f"{_relative(paths, file)}: {error}"
            continue
        if found != name:
            yield f"{_relative(paths, file)}: is architecture {found}, not {name}"


def _archives(paths: RunPaths) -> Iterator[str]:
    for file in sorted(paths.models.glob("*/*.npz")):
        try:
            with np.load(file, allow_pickle=False) as archive:
                for name in archive.files:
                    archive[name]
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, KeyError) as error:
            if not _is_simulated(file):
                yield f"{_relative(paths, file)}: cannot be read: {error}"


def _is_simulated(file: Path) -> bool:
    """The simulated trainer's checkpoints are lists of accuracies."""
    try:
        return isinstance(json.loads(file.read_bytes()), list)
    except ValueError:
        return False


def _foreign(paths: RunPaths) -> Iterator[str]:
    for file in sorted(paths.root.rglob("*")):
        name = _relative(paths, file)
        if file.is_dir():
            continue
        if TEMPORARY.fullmatch(name):
            yield f"{name}: a temporary file left behind"
        elif not belongs(name):
            yield f"{name}: does not belong to the run"


def _relative(paths: RunPaths, file: Path) -> str:
    return str(file.relative_to(paths.root))
