"""The primary's snapshot of a large run in progress, for those who only watch it.

It spares them the records of thousands of replicas. It is provisional and never evidence: reports,
scores and checks are made from the records. There is none of a run that ended, and a primary that
was killed leaves one that soon is too old.
"""

from pydantic import BaseModel, ConfigDict, Field

from aiperf.errors import RunDirectoryError
from aiperf.run_directory.paths import RunPaths
from aiperf.untrusted.reading import MIB, Limits, read_outside

FEWEST_REPLICAS = 64
"""The records of fewer replicas are read in less time than passes between two snapshots."""

INTERVAL_S = 5.0
"""Least time between two snapshots."""

STALE_MS = 30_000
"""A snapshot that is older, or this much ahead of the reader's clock, is not used."""

SNAPSHOT_LIMITS = Limits(size=32 * MIB)
"""About 100 bytes a replica, of which there are at most 100,000."""

ReplicaRow = tuple[int, str, str | None, int | None, int | None, int | None, float | None, int]
"""Replica, state, phase, trial, round, completed epochs, best accuracy of the trial, operations."""


class Snapshot(BaseModel):
    """A run at one moment, as its primary has heard of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = Field(1, ge=1, le=1)
    name: str
    """Name of the run."""
    simulated: bool
    """True if nothing is trained."""
    validation_images: int = Field(ge=1)
    """Images that accuracies are measured on."""
    host: str
    pid: int
    """The primary that wrote it."""
    written_ms: int
    """UTC milliseconds of the primary's clock."""
    released: bool
    elapsed_s: float
    """Seconds since the release."""
    duration_s: float
    trials: int
    """The highest number of a trial that was issued."""
    best_accuracy: float | None
    operations: int
    replicas: tuple[ReplicaRow, ...]


def read_snapshot(paths: RunPaths, now_ms: int) -> Snapshot | None:
    """The snapshot of a run; None without one that is recent and whole."""
    if not paths.snapshot.exists():
        return None
    try:
        found = read_outside(paths.snapshot, Snapshot.model_validate_json, SNAPSHOT_LIMITS)
    except RunDirectoryError:
        return None
    return found if abs(now_ms - found.written_ms) < STALE_MS else None
