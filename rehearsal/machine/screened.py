"""The all-reduce of a machine file, as `aiperf screen --fabric` has measured it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aiperf.errors import UsageError
from aiperf.screening.fabric import typical_fit
from aiperf.screening.outcome import FILE, read_outcome


def is_screening(path: Path) -> bool:
    """True for the folder of a screening, and for its file."""
    return path.name == FILE or (path / FILE).is_file()


def of_screening(path: Path) -> dict[str, Any]:
    """The section `all_reduce`: within nodes if they have several accelerators, else between nodes.

    Raises UsageError of a screening without exchanges.
    """
    outcome = read_outcome(path)
    found = typical_fit(outcome.meetings, inside=True) or typical_fit(outcome.meetings, inside=False)
    if found is None:
        raise UsageError(f"{path}: nodes exchanged nothing in this screening: aiperf screen --fabric")
    return {"algorithm": "ring", "latency_s": found.latency_s, "bytes_per_s": found.bytes_per_s}
