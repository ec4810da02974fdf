"""Jobs: what the primary issued, by the schedule, and what the replicas started."""

from collections.abc import Iterator
from typing import Any

from aiperf.records.bodies import JobIssued, RunReleased, RunResumed, TrialClosed, TrialStarted
from aiperf.records.damage import Damage
from aiperf.records.fencing import CLOCK_TOLERANCE_MS
from aiperf.rules.rounds import plan_round
from aiperf.rules.schedule import MAX_RESUMPTIONS, Assignment, next_assignment
from analysis.reading.integrity.traces import Traces
from analysis.reading.integrity.view import Placed, RunView, TrialTrace, replica_of


def check_start(trace: TrialTrace[TrialStarted], view: RunView) -> Iterator[Damage]:
    """A start that is not of a job that the primary issued to this replica before."""
    place, body = trace.started, trace.started.body
    planned = plan_round(max(1, body.round), view.max_epochs).epochs
    if body.epochs != planned:
        found = f"trial {body.trial} of round {body.round} plans {body.epochs} epochs"
        yield place.damage("bounds", found, str(planned))
    for job in check_issued(trace, view):
        if isinstance(job, Damage):
            yield job
        elif _terms(body) != _terms(job.body):
            found = f"trial {body.trial} has {_shown(body)}"
            yield place.damage("conflict", found, f"{_shown(job.body)}, as issued")


def check_issued(trace: TrialTrace[Any], view: RunView) -> Iterator[Damage | Placed[JobIssued]]:
    """The job that a training was issued by, if there is one, and what does not fit it."""
    place, body = trace.started, trace.started.body
    replica = replica_of(trace.writer)
    if body.replica != replica:
        yield place.damage("conflict", f"trial {body.trial} says replica {body.replica}", f"replica {replica}")
    jobs = view.primary.issued.get(body.trial)
    if not jobs:
        if not view.unfinished:  # else it may have been issued since the primary's file was read
            yield place.damage("conflict", f"trial {body.trial} starts", "a job that the primary issued")
        return
    job = jobs[0]
    if job.body.replica != replica:
        found = f"trial {body.trial} starts on replica {replica}"
        yield place.damage("conflict", found, f"replica {job.body.replica}, to which it was issued")
    if view.corrected(trace.writer, place.time_ms) < job.time_ms - CLOCK_TOLERANCE_MS:
        yield place.damage("time", f"trial {body.trial} starts before it was issued", "after it")
    yield job


def check_unstarted(traces: Traces, view: RunView) -> Iterator[Damage]:
    """Failures of trials that this replica never started and was never given."""
    for place in traces.failed_unstarted:
        jobs = view.primary.issued.get(place.body.trial)
        if not jobs and not view.unfinished:
            yield place.damage("conflict", f"trial {place.body.trial} fails", "a job that the primary issued")


def _terms(body: TrialStarted | JobIssued) -> tuple[int, int, int | None, int | None]:
    return body.round, body.point, body.base, body.resumes


def _shown(body: TrialStarted | JobIssued) -> str:
    base = "" if body.base is None else f", base {body.base}"
    resumes = "" if body.resumes is None else f", resuming {body.resumes}"
    return f"round {body.round}, point {body.point}{base}{resumes}"


def check_jobs(view: RunView) -> Iterator[Damage]:
    """Jobs that were issued twice or out of order, or that the schedule does not give."""
    last = 0
    previous: dict[int, Placed[JobIssued]] = {}
    attempts: dict[tuple[int, int, int], int] = {}
    resumed: dict[int, int] = {}
    complete: set[int] = set()
    resumptions: dict[int, list[int]] = {}
    """The trials that resume a training, by each of its trials."""
    for _, place in view.primary.events:
        if isinstance(place.body, TrialClosed) and place.body.how == "completed":
            complete.add(place.body.trial)
        if not isinstance(place.body, JobIssued):
            continue
        job: Placed[JobIssued] = place  # type: ignore[assignment]
        if job.body.trial <= last:
            yield job.damage("conflict", f"job {job.body.trial} is issued after job {last}", "ids that grow")
        last = max(last, job.body.trial)
        if job.body.resumes is not None:
            # No step of the replica's own schedule: its next job follows the one before this.
            yield from _resumption(job, view, resumed)
            own = resumptions.setdefault(job.body.resumes, [])
            resumptions[job.body.trial] = own
            own.append(job.body.trial)
            if job.body.resumes in complete or len(own) > MAX_RESUMPTIONS:
                found = f"job {job.body.trial} resumes trial {job.body.resumes}"
                limit = f"a training that was not completed, at most {MAX_RESUMPTIONS} times"
                yield job.damage("conflict", found, limit)
            continue
        yield from _assignment(job, previous.get(job.body.replica), view)
        yield from _seed(job, attempts, view)
        previous[job.body.replica] = job


def check_turns(view: RunView) -> Iterator[Damage]:
    """Jobs before the release, before the replica's last one is closed, or after the end.

    A replica trains one trial at a time, also if it was restarted and writes to another file.
    """
    open_: dict[int, int] = {}
    replicas: dict[int, set[int]] = {}
    """Replicas that each trial was issued to."""
    released, stopping = False, False
    writer_before = ""
    for writer, place in view.primary.events:
        body = place.body
        # A primary that resumes the run issues jobs again, whatever the one before it had stopped.
        stopping = stopping and writer == writer_before
        writer_before = writer
        if isinstance(body, RunReleased):
            released = True
        elif isinstance(body, RunResumed):
            released = released and not body.new_clock
        elif isinstance(body, TrialClosed):
            for replica in [number for number in replicas.get(body.trial, ()) if open_.get(number) == body.trial]:
                del open_[replica]
            stopping = stopping or body.how == "stopped"
        elif isinstance(body, JobIssued):
            if not released:
                yield place.damage("time", f"job {body.trial} is issued", "the release of the replicas before")
            if stopping:
                yield place.damage(
                    "conflict", f"job {body.trial} is issued after a trial was stopped", "none: the run had ended"
                )
            if body.replica in open_:
                found = f"job {body.trial} is issued while trial {open_[body.replica]} of the replica is in progress"
                yield place.damage("conflict", found, "one trial at a time")
            open_[body.replica] = body.trial
            replicas.setdefault(body.trial, set()).add(body.replica)


def _resumption(job: Placed[JobIssued], view: RunView, resumed: dict[int, int]) -> Iterator[Damage]:
    """A job that resumes a trial has its terms, and no other one has gone on from the same."""
    body = job.body
    assert body.resumes is not None
    rival = resumed.get(body.resumes)
    if rival is not None and view.primary.witnessed.epochs[rival]:
        found = f"job {body.trial} resumes trial {body.resumes}"
        yield job.damage("conflict", found, f"once: job {rival} does")
    else:
        # Of one of which the primary heard no epoch it knows no more than that it resumed the same.
        resumed[body.resumes] = body.trial
    earlier = view.primary.issued.get(body.resumes)
    if not earlier or earlier[0].body.trial >= body.trial:
        yield job.damage("conflict", f"job {body.trial} resumes trial {body.resumes}", "an earlier job")
        return
    old = earlier[0].body
    if (body.round, body.seed, body.point, body.base) != (old.round, old.seed, old.point, old.base):
        found = f"job {body.trial} has {_shown(body)}, seed {body.seed}"
        yield job.damage("conflict", found, f"{_shown(old)}, seed {old.seed}, as trial {old.trial}")


def _assignment(job: Placed[JobIssued], before: Placed[JobIssued] | None, view: RunView) -> Iterator[Damage]:
    body = job.body
    found = Assignment(body.round, body.point, body.base)
    allowed = _allowed(before.body, view) if before is not None else [Assignment()]
    if found not in allowed:
        names = " or ".join(f"round {next_.round}, point {next_.point}" for next_ in allowed)
        yield job.damage("conflict", f"job {body.trial} has {_shown(body)}", f"{names}, by the schedule")


def _allowed(before: JobIssued, view: RunView) -> list[Assignment]:
    """The assignments that may follow a job: one if it ended well, else it may be handed back."""
    last = Assignment(before.round, before.point, before.base)
    index = view.trials.get(before.trial)
    closings = view.primary.closed.get(before.trial, [])
    ended = index is not None and index.ended is not None and index.ended.body.reason != "stopped"
    # A job that did not end well may have been handed back to be resumed, which counts as
    # completed for its replica's schedule (`AutomlRounds`), or not.
    completed = [True] if ended and any(c.body.how == "completed" for c in closings) else [True, False]
    after = (next_assignment(last, before.trial, outcome, view.config.search) for outcome in completed)
    return [Assignment(item.round, item.point, item.base) for item in after]


def _seed(job: Placed[JobIssued], attempts: dict[tuple[int, int, int], int], view: RunView) -> Iterator[Damage]:
    """Seeds are those of `Assignment.seed`. An attempt's number starts again in a resumed run."""
    body = job.body
    key = (body.replica, body.round, body.point)
    made = attempts.get(key, 0)
    attempts[key] = made + 1
    # A primary that resumed the run counts attempts from 0 again, so any number up to the known one
    # is honest.
    seeds = (Assignment(body.round, body.point, attempt=n).seed(view.config, body.replica) for n in range(made + 1))
    if body.seed not in seeds:
        yield job.damage("conflict", f"job {body.trial} has seed {body.seed}", "the seed of the run's and its place")
