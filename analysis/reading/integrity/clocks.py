"""Moments of a run that do not fit together: release, end, resumption, arrivals, epochs."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from aiperf.facts import LAST_MS
from aiperf.records.bodies import JobIssued, ReplicaLost, ReplicaReady, RunEnded, RunReleased, RunResumed, TrialClosed
from aiperf.records.damage import Damage
from aiperf.records.fencing import CLOCK_TOLERANCE_MS
from analysis.reading.integrity.view import Placed, RunView, WriterRecords

RESUMED_TOLERANCE_MS = 1_000
"""Tolerance by which a resuming primary's clock may be behind that of the one before it.

Resuming takes longer than this, so the tolerance can gain nothing. A node whose clock is behind by
more cannot resume the run of another one by the rules: its time would count twice.
"""

TIMER_MS = 1_000
"""Tolerance by which a run may notice its deadline early."""


def check_moments(view: RunView) -> Iterator[Damage]:
    """Releases, ends and resumptions of the primaries, in order."""
    released: Placed[RunReleased] | None = None
    latest_ms: int | None = None
    writer_before = ""
    lasts = {file.writer: file.last_ms for file in view.primary.files}
    for writer, place in view.primary.events:
        body = place.body
        if writer != writer_before:
            latest_ms = max((last for last in (latest_ms, lasts.get(writer_before)) if last is not None), default=None)
            yield from _first_of_file(place, writer_before, latest_ms)
        elif isinstance(body, RunResumed):
            yield place.damage("time", "the run is resumed by the same primary", "another one")
        # A new clock allows one more release; such a run is not official.
        if isinstance(body, RunResumed) and body.new_clock:
            released = None
        elif isinstance(body, RunReleased):
            yield from _release(place, body, released, view)  # type: ignore[arg-type]
            released = place  # type: ignore[assignment]
        elif isinstance(body, RunEnded):
            yield from _end(place, body, released, latest_ms)  # type: ignore[arg-type]
        writer_before, latest_ms = writer, max(place.time_ms, latest_ms or place.time_ms)


def _first_of_file(place: Placed[object], writer_before: str, latest_ms: int | None) -> Iterator[Damage]:
    """A later primary begins with a resumption, after everything that the earlier ones recorded."""
    if not writer_before:
        return
    if not isinstance(place.body, RunResumed):
        yield place.damage("conflict", "another primary writes", "run_resumed as its first record")
    if latest_ms is not None and place.time_ms < latest_ms - RESUMED_TOLERANCE_MS:
        found = f"the run is resumed {latest_ms - place.time_ms} ms before the last record of {writer_before}"
        yield place.damage("time", found, "after it: the clock was set back")


def _release(
    place: Placed[RunReleased], body: RunReleased, before: Placed[RunReleased] | None, view: RunView
) -> Iterator[Damage]:
    configured_ms = round(view.config.run.duration * 1000)
    if before is not None:
        yield place.damage("time", "the replicas are released again", "one release, unless the clock starts anew")
    if body.duration_ms != configured_ms:
        yield place.damage("time", f"a duration of {body.duration_ms} ms", f"{configured_ms} ms, as run.json says")


def _end(
    place: Placed[RunEnded], body: RunEnded, released: Placed[RunReleased] | None, latest_ms: int | None
) -> Iterator[Damage]:
    if released is None:
        if body.reason == "deadline":
            yield place.damage("time", "the run reaches its deadline", "a release before")
        return
    due_ms = released.time_ms + released.body.duration_ms
    if body.reason == "deadline":
        if body.end_ms != due_ms:
            yield place.damage(
                "time",
                f"the end is {body.end_ms - released.time_ms} ms after the release",
                f"{released.body.duration_ms} ms, the duration",
            )
        elif place.time_ms < due_ms - TIMER_MS:
            yield place.damage(
                "time", f"the end is recorded {due_ms - place.time_ms} ms before the deadline", "at the deadline"
            )
    elif not (latest_ms or 0) <= body.end_ms <= place.time_ms:
        yield place.damage(
            "time",
            f"the end is {body.end_ms - place.time_ms} ms after its record",
            "after the record before, and not after this one",
        )


def check_arrival(read: WriterRecords, view: RunView) -> Iterator[Damage]:
    """A replica's records before the primary had found it ready."""
    arrivals = view.primary.arrivals.get(read.writer, [])
    if not arrivals:
        return
    ready_ms = arrivals[0].time_ms - CLOCK_TOLERANCE_MS
    first_ms = view.writers[read.writer].first_ms
    if view.corrected(read.writer, LAST_MS if first_ms is None else first_ms) >= ready_ms:
        return
    moments = read.moments()
    moments[:, 1] -= view.ledger.offsets_ms.get(read.writer, 0)
    early = moments[moments[:, 1] < ready_ms]
    line, moment_ms = early[np.argmin(early[:, 0])].tolist()
    found = f"the record is {arrivals[0].time_ms - moment_ms} ms before the replica was ready"
    yield Damage(read.file, line, "time", found, "after it")


def check_arrivals(view: RunView) -> Iterator[Damage]:
    """Writers that arrive twice, under another replica's name, or with clocks that disagree."""
    for writer, arrivals in sorted(view.primary.arrivals.items()):
        for first, second in pairwise(arrivals):
            if _clock(first.body) != _clock(second.body):
                yield second.damage("conflict", f"{writer} is ready again, on another replica or clock", "once")
        for place in arrivals:
            if writer.rpartition("-")[0] != f"replica-{place.body.replica:04d}":
                yield place.damage("conflict", f"replica {place.body.replica} writes as {writer}", "its own name")


def check_losses(view: RunView) -> Iterator[Damage]:
    """Replicas that are ready again, or whose training was lost, without a record of their loss.

    A later primary finds replicas anew, and what an earlier one had issued is lost with it. After
    the end of the run no loss is recorded: jobs are issued before it only.
    """
    last_job = {writer: place.line for writer, place in view.primary.events if isinstance(place.body, JobIssued)}
    issued = {trial: jobs[0].body.replica for trial, jobs in view.primary.issued.items()}
    there: dict[tuple[str, int | None], str] = {}
    """The file of each replica that is there, by primary."""
    for writer, place in view.primary.events:
        body = place.body
        replica = issued.get(body.trial) if isinstance(body, TrialClosed) else getattr(body, "replica", None)
        if isinstance(body, ReplicaLost):
            there.pop((writer, replica), None)
        elif isinstance(body, ReplicaReady):
            if there.get((writer, replica), body.writer) != body.writer:
                yield place.damage("conflict", f"replica {replica} is ready again", "replica_lost before")
            there[writer, replica] = body.writer
        elif (
            isinstance(body, TrialClosed)
            and body.how == "lost"
            and (writer, replica) in there
            and place.line < last_job.get(writer, 0)
        ):
            yield place.damage("conflict", f"trial {body.trial} is lost with replica {replica}", "replica_lost before")


def _clock(body: ReplicaReady) -> tuple[int, int]:
    return body.replica, body.clock_offset_ms
