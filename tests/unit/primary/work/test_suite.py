"""The work list of a scientific suite: every model once, and what is lost again."""

import pytest
from msgspec.structs import replace

from aiperf.config.settings import load_config
from aiperf.errors import ConfigError
from aiperf.records.bodies import AnyBody, JobIssued, TrialEnded, TrialFailed
from aiperf.records.ledger import Ledger
from aiperf.records.record import Record
from aiperf.rules.schedule import MAX_RESUMPTIONS
from aiperf.wire.messages import Finished, Job
from primary.work import WorkList, open_work
from tests.support.trainings.jobs import take

SCIENCE = {
    "run.suite": "science",
    "science.workloads": ["hepcnn", "cosmoflow"],
    "science.size": "rehearsal",
    "science.instances": 2,
}
CONFIG = load_config(overrides=SCIENCE)
MODELS = [("hepcnn", 0), ("cosmoflow", 0), ("hepcnn", 1), ("cosmoflow", 1)]


def end(work: WorkList, job: Job, kind: str = "") -> None:
    work.finished(0, job, Finished(trial=job.trial, completed=not kind, reason="", kind=kind), began=True)


def ledger_of(*bodies: AnyBody) -> Ledger:
    ledger = Ledger()
    ledger.add([Record("primary-1", number, number, number, body) for number, body in enumerate(bodies)])
    return ledger


def issued(trial: int, workload: str, instance: int, resumes: int | None = None) -> JobIssued:
    return JobIssued(trial=trial, replica=0, round=1, seed=1, workload=workload, instance=instance, resumes=resumes)


def test_every_model_is_trained_once_then_the_work_is_complete() -> None:
    work, seeds = open_work(CONFIG), set()
    for workload, instance in MODELS:
        job = take(work, 0)
        assert (job.workload, job.instance, work.complete) == (workload, instance, False)
        seeds.add(job.seed)
        end(work, job)
    assert (work.next_job(0), work.complete, len(seeds)) == (None, True, len(MODELS))


def test_what_another_replica_still_trains_may_come_back() -> None:
    work = open_work(CONFIG)
    jobs = [take(work, replica) for replica in range(len(MODELS))]
    assert work.next_job(5) is None
    assert not work.complete
    work.lost(0, jobs[0], began=True)
    again = take(work, 5)
    assert again == replace(jobs[0], trial=again.trial, resumes=jobs[0].trial)


def test_a_model_that_fails_again_and_again_is_given_up_and_one_that_cannot_train_at_once() -> None:
    work = open_work(CONFIG)
    jobs = [take(work, replica) for replica in range(len(MODELS))]
    for job in jobs[1:]:
        end(work, job, "nan")
    job = jobs[0]
    for _ in range(MAX_RESUMPTIONS):
        end(work, job, "crash")
        job = take(work, 0)
    end(work, job, "crash")
    assert (work.next_job(0), work.complete) == (None, True)


def test_a_resumed_run_leaves_out_what_is_done_and_resumes_what_is_not() -> None:
    ledger = ledger_of(
        issued(1, "hepcnn", 0),
        TrialEnded(trial=1, reason="early_stop"),
        issued(2, "cosmoflow", 0),
        TrialFailed(trial=2, replica=0, kind="nan", reason="the loss is nan"),
        issued(3, "hepcnn", 1),
        TrialEnded(trial=3, reason="stopped"),
    )
    work = open_work(CONFIG, ledger)
    first, second = take(work, 0), take(work, 1)
    assert (first.workload, first.instance, first.resumes) == ("hepcnn", 1, 3)
    assert (second.workload, second.instance, second.resumes) == ("cosmoflow", 1, None)
    assert (first.trial, second.trial, work.next_job(2)) == (4, 5, None)


def test_a_resumption_that_began_nothing_is_not_what_is_resumed() -> None:
    work = open_work(CONFIG)
    job = take(work, 0)
    work.lost(0, job, began=True)
    again = next(each for each in (take(work, 0) for _ in MODELS) if each.resumes is not None)
    work.lost(0, again, began=False)
    assert take(work, 1).resumes == job.trial


def test_attempts_before_a_resumption_of_the_run_count() -> None:
    trials = [issued(1, "hepcnn", 0)] + [
        issued(2 + number, "hepcnn", 0, resumes=1 + number) for number in range(MAX_RESUMPTIONS)
    ]
    work = open_work(load_config(overrides={**SCIENCE, "science.workloads": ["hepcnn"]}), ledger_of(*trials))
    assert take(work, 0).instance == 1, "the first model is given up"


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"science.workloads": []}, "names none"),
        ({"science.workloads": ["hepcnn", "hepcnn"]}, "names one twice"),
        ({"science.size": "official"}, "needs the folder of its data sets"),
        ({"training.framework": "jax"}, "'jax' trains no scientific workload"),
        ({"run.manager": "nni"}, "'nni' has trials of AutoML only"),
        ({"run.suite": "automl"}, "add --suite science"),
        ({"run.suite": "automl", "science.workloads": []}, r"\(--rehearsal\): add --suite science"),
    ],
)
def test_settings_that_make_no_suite_are_named(changed: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load_config(overrides={**SCIENCE, **changed})
