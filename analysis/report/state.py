"""The state of a run at a moment, by its records and the claim of its primary."""

from aiperf.run_directory.claim import SeenHolder, find_holder
from aiperf.run_directory.paths import RunPaths
from aiperf.run_directory.state import IN_PROGRESS, OVER, State
from analysis.reading.run_data import RunData, read_run


def recorded_state(data: RunData) -> State:
    """The state by the records alone, as of a run without a primary."""
    if data.ended in ("deadline", "completed"):
        return "ended"
    return "failed" if data.ended == "no_replicas" and data.start_ms is None else "interrupted"


def find_state(data: RunData, now_ms: int) -> tuple[State, SeenHolder | None]:
    """The state of a run at this moment, and the primary that claims it."""
    holder, unfinished = find_holder(data.paths.claims, now_ms), data.ended == "unfinished"
    if unfinished and holder is not None and holder.alive:
        return ("starting" if data.start_ms is None else "running"), holder
    by_records = recorded_state(data)
    if by_records in OVER:
        return by_records, holder
    if seconds_left(data, now_ms) == 0:
        return "failed", holder
    if unfinished and holder is not None and not holder.here:
        return "silent", holder
    # Its directory was just made. Files of replicas alone are no start: a primary's was removed.
    if unfinished and holder is None and not data.paths.history_files("*"):
        return "starting", holder
    return "interrupted", holder


def read_now(paths: RunPaths, now_ms: int) -> tuple[RunData, State, SeenHolder | None]:
    """A run up to now, or to its end if it is over; its state, and its primary.

    Raises RunDirectoryError if it is not a run.
    """
    data = read_run(paths, now_ms=now_ms)
    state, holder = find_state(data, now_ms)
    if data.ended == "unfinished" and state not in IN_PROGRESS:
        # A run that is not in progress ends with its last record, not now.
        data = read_run(paths)
    return data, state, holder


def seconds_left(data: RunData, now_ms: int) -> float | None:
    """Seconds to the deadline, at least 0; None if the run was never released."""
    if data.start_ms is None or data.ledger.released is None:
        return None
    planned_ms = min(data.ledger.released.body.duration_ms, round(data.manifest.config.run.duration * 1000))
    return max(0.0, (data.start_ms + planned_ms - now_ms) / 1000)


def is_simulated(data: RunData) -> bool:
    """True if nothing was trained: a rehearsal in virtual time, or the simulated trainer."""
    return data.manifest.rehearsed is not None or data.manifest.config.training.trainer == "simulated"
