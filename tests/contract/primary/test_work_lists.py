"""One suite for every work list."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest
from msgspec.structs import replace

from aiperf.config.settings import RunConfig, load_config
from aiperf.records.bodies import (
    AnyBody,
    ReplicaReady,
    RunReleased,
    RunResumed,
    TrialEnded,
    TrialFailed,
    TrialStarted,
    issued,
)
from aiperf.records.ledger import Ledger
from aiperf.records.record import Record
from aiperf.wire.messages import Finished, Job
from primary.work import WORK_LISTS, WorkList
from tests.support.trainings.jobs import take

CONFIG = load_config(
    overrides={
        "run.dataset": "digits",
        "run.suite": "science",
        "science.workloads": ["hepcnn", "cosmoflow"],
        "science.size": "rehearsal",
        "science.instances": 100,
    }
)
"""Work enough for every test: of AutoML there is no end."""
REPLICAS = 3

OpenWorkList = Callable[[RunConfig, Ledger], WorkList]


@pytest.fixture(params=list(WORK_LISTS))
def opened(request: pytest.FixtureRequest) -> OpenWorkList:
    return WORK_LISTS[request.param]


class Books:
    """A ledger that is kept of the jobs of a work list, as the records of a run keep it."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self._numbers = {f"replica-{replica:04d}-1": count() for replica in range(REPLICAS)} | {"primary-1": count()}
        self._now_ms = 0
        for replica in range(REPLICAS):
            self.write(
                ReplicaReady(replica=replica, writer=f"replica-{replica:04d}-1", accelerators=1, clock_offset_ms=0)
            )
        self.write(RunReleased(duration_ms=10**9, ready=tuple(range(REPLICAS))))

    def write(self, body: AnyBody, writer: str = "primary-1") -> None:
        self._now_ms += 1
        self.ledger.add([Record(writer, next(self._numbers[writer]), self._now_ms, self._now_ms, body)])

    def started(self, replica: int, job: Job) -> None:
        self.write(issued(job, replica))
        body = TrialStarted(
            trial=job.trial,
            replica=replica,
            round=job.round,
            architecture="0" * 16,
            parent=None,
            hyperparameters={},
            epochs=4,
        )
        self.write(body, f"replica-{replica:04d}-1")

    def ended(self, replica: int, job: Job) -> None:
        self.write(TrialEnded(trial=job.trial, reason="completed"), f"replica-{replica:04d}-1")

    def failed(self, replica: int, job: Job) -> None:
        body = TrialFailed(trial=job.trial, replica=replica, kind="nan", reason="the loss is not a number")
        self.write(body, f"replica-{replica:04d}-1")


def done(job: Job) -> Finished:
    return Finished(trial=job.trial, completed=True, reason="")


def whole_jobs(work: WorkList, count_of_each: int, books: Books | None = None) -> Iterator[tuple[int, Job]]:
    """Jobs that all replicas do to their ends, in turns."""
    for _ in range(count_of_each):
        for replica in range(REPLICAS):
            job = take(work, replica)
            work.finished(replica, job, done(job), began=True)
            if books is not None:
                books.started(replica, job)
                books.ended(replica, job)
            yield replica, job


def test_ids_are_unique_and_only_grow(opened: OpenWorkList) -> None:
    work = opened(CONFIG, Ledger())
    ids = [job.trial for _, job in whole_jobs(work, 4)]
    at_once = [take(work, replica) for replica in range(REPLICAS)]
    work.lost(0, at_once[0], began=True)
    ids += [job.trial for job in at_once] + [take(work, 1).trial]
    assert ids == sorted(set(ids))
    assert ids[0] == 1


def test_the_same_configuration_gives_the_same_jobs(opened: OpenWorkList) -> None:
    first, second = (list(whole_jobs(opened(CONFIG, Ledger()), 5)) for _ in range(2))
    assert first == second
    assert len({job.seed for _, job in first}) == len(first)


def test_a_lost_job_is_given_out_again_as_a_resumption(opened: OpenWorkList) -> None:
    work = opened(CONFIG, Ledger())
    job = take(work, 0)
    work.lost(0, job, began=True)
    again = take(work, REPLICAS - 1)
    assert again == replace(job, trial=again.trial, resumes=job.trial)
    work.finished(REPLICAS - 1, again, done(again), began=True)
    assert all(other.resumes is None for _, other in whole_jobs(work, 3)), "once is enough"


def test_a_job_that_is_lost_again_and_again_is_given_up(opened: OpenWorkList) -> None:
    work = opened(CONFIG, Ledger())
    job = take(work, 0)
    resumptions = 0
    while True:
        work.lost(0, job, began=True)
        job = take(work, 0)
        if job.resumes is None:
            break
        resumptions += 1
        assert resumptions < 100
    assert resumptions >= 1


def test_after_completed_jobs_a_resumed_run_continues_as_if_it_had_not_ended(opened: OpenWorkList) -> None:
    work, books = opened(CONFIG, Ledger()), Books()
    assert len(list(whole_jobs(work, 7, books))) == 7 * REPLICAS
    books.write(RunResumed())
    resumed = opened(CONFIG, books.ledger)
    assert list(whole_jobs(resumed, 5)) == list(whole_jobs(work, 5))


def test_jobs_in_progress_in_the_ledger_are_resumed_before_anything_else(opened: OpenWorkList) -> None:
    work, books = opened(CONFIG, Ledger()), Books()
    list(whole_jobs(work, 2, books))
    in_progress = [take(work, replica) for replica in range(REPLICAS)]
    for replica, job in enumerate(in_progress):
        books.started(replica, job)
    books.failed(0, in_progress[0])
    books.write(RunResumed())
    resumed = opened(CONFIG, books.ledger)
    jobs = [take(resumed, replica) for replica in range(REPLICAS)]
    last = in_progress[-1].trial
    assert jobs[:2] == [
        replace(old, trial=last + number, resumes=old.trial) for number, old in enumerate(in_progress[1:], start=1)
    ]
    assert (jobs[2].trial, jobs[2].resumes) == (last + 3, None)
