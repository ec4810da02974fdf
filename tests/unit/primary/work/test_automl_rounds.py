"""AutoML rounds: schedules, resumed trainings, limits, and the start of a resumed run."""

from pathlib import Path

from aiperf.config.settings import load_config
from aiperf.records.bodies import RunResumed, TrialEnded
from aiperf.records.history_files import HistoryReader
from aiperf.records.ledger import Ledger
from aiperf.rules.schedule import MAX_RESUMPTIONS
from aiperf.wire.messages import Finished, Job
from primary.work import WorkList, open_work
from tests.support.hand_made import HandMadeRun
from tests.support.trainings.jobs import take

CONFIG = load_config(overrides={"run.dataset": "digits"})


def done(job: Job, completed: bool = True, kind: str = "") -> Finished:
    return Finished(trial=job.trial, completed=completed, reason="", kind=kind)


def test_every_replica_follows_its_own_schedule() -> None:
    work = open_work(CONFIG)
    a, b = take(work, 0), take(work, 1)
    assert (a.trial, a.round, b.trial, b.round) == (1, 1, 2, 1)
    assert a.seed != b.seed
    work.finished(0, a, done(a), began=True)
    assert take(work, 0).round == 2


def test_a_crashed_training_is_resumed_by_the_next_free_replica_a_limited_number_of_times() -> None:
    work = open_work(CONFIG)
    job = take(work, 0)
    seeds = {job.seed}
    for attempt in range(MAX_RESUMPTIONS):
        work.finished(attempt % 2, job, done(job, False, "crash"), began=True)
        resumed = take(work, 1 - attempt % 2)
        assert (resumed.resumes, resumed.round) == (job.trial, 1)
        seeds.add(resumed.seed)
        job = resumed
    assert len(seeds) == 1
    work.finished(0, job, done(job, False, "crash"), began=True)
    following = take(work, 0)
    assert following.resumes is None
    assert following.round == 2, "the replica moved on when its training was taken over"


def test_a_training_that_fails_by_itself_is_not_repeated_as_it_was() -> None:
    work = open_work(CONFIG)
    job = take(work, 0)
    work.finished(0, job, done(job, False, "out_of_memory"), began=True)
    again = take(work, 0)
    assert (again.resumes, again.round, again.seed != job.seed) == (None, 1, True)


def test_a_training_that_was_crowded_out_is_alone_wherever_it_is_resumed(tmp_path: Path) -> None:
    work = open_work(CONFIG)
    job = take(work, 0)
    work.finished(0, job, done(job, False, "crowded"), began=True)
    again = take(work, 1)
    assert (job.alone, again.resumes, again.alone) == (False, job.trial, True)
    work.lost(1, again, began=True)
    assert take(work, 0).alone
    # The same by the records, after another failure, too.
    run = (
        HandMadeRun(tmp_path).at(0).release(100, replicas=2).at(1).start_trial(1, 0).at(5).fail_trial(1, kind="crowded")
    )
    assert take(open_work(CONFIG, ledger_of(run)), 1).alone
    run.at(6).start_trial(2, 1, resumes=1).at(8).fail_trial(2, replica=1, kind="hang")
    resumed = take(open_work(CONFIG, ledger_of(run)), 1)
    assert (resumed.resumes, resumed.alone) == (2, True)


def test_a_lost_replicas_training_goes_to_another() -> None:
    work = open_work(CONFIG)
    job = take(work, 0)
    work.lost(0, job, began=True)
    assert take(work, 5).resumes == job.trial


def ledger_of(run: HandMadeRun) -> Ledger:
    ledger = Ledger()
    ledger.add(HistoryReader(run.paths).read_new().records)
    return ledger


def test_a_job_that_began_nothing_is_done_anew_by_its_replica(tmp_path: Path) -> None:
    """Nobody could resume it, nor tune the hyperparameters of an architecture that it never had."""
    work = open_work(CONFIG)
    job = take(work, 0)
    work.lost(0, job, began=False)
    assert take(work, 1).resumes is None
    again = take(work, 0)
    assert (again.resumes, again.round, again.point, again.seed != job.seed) == (None, 1, 0, True)
    work.finished(0, again, done(again, False, "start"), began=False)
    assert (take(work, 1).resumes, take(work, 0).round) == (None, 1)
    # The same by the records, if the primary is lost as well.
    run = HandMadeRun(tmp_path).at(0).release(100, replicas=2).at(1).start_trial(1, 0)
    run.tell(run.job(2, 1))
    run.at(5).primary.append(RunResumed())
    work = open_work(CONFIG, ledger_of(run))
    assert take(work, 1).resumes == 1
    assert (take(work, 1).round, take(work, 0).round) == (1, 2)


def test_a_resumption_that_began_nothing_loses_nothing(tmp_path: Path) -> None:
    """The next one resumes what has epochs and a checkpoint, as often as any training."""
    work = open_work(CONFIG)
    job = take(work, 0)
    work.lost(0, job, began=True)
    for _ in range(MAX_RESUMPTIONS):
        resumed = take(work, 1)
        assert (resumed.resumes, resumed.seed) == (job.trial, job.seed)
        work.finished(1, resumed, done(resumed, False, "start"), began=False)
    assert take(work, 1).resumes is None
    # The same by the records.
    run = HandMadeRun(tmp_path).at(0).release(100, replicas=2).at(1).start_trial(1, 0).at(4).epoch(1, 1)
    for attempt in range(MAX_RESUMPTIONS + 1):
        run.at(5 + attempt).primary.append(RunResumed())
        expected = 1 if attempt < MAX_RESUMPTIONS else None
        assert take(open_work(CONFIG, ledger_of(run)), 1).resumes == expected
        run.tell(run.job(2 + attempt, 1, resumes=1))


def test_a_failure_that_waits_to_be_resumed_is_when_the_primary_is_lost_as_well(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100, replicas=2)
    run.at(1).start_trial(1, 0).start_trial(2, 1).at(4).epoch(1, 1)
    run.at(5).fail_trial(1, kind="rank_lost").fail_trial(2, replica=1, kind="nan")
    run.at(6).primary.append(RunResumed())
    work = open_work(CONFIG, ledger_of(run))
    assert take(work, 1).resumes == 1
    jobs = [take(work, replica) for replica in range(2)]
    assert [(job.resumes, job.round) for job in jobs] == [(None, 2), (None, 1)]


def test_an_interrupted_run_continues_from_its_records(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100, replicas=3)
    run.at(1).start_trial(1, 0).start_trial(2, 1).start_trial(3, 2)
    run.at(9).epoch(1, 1).end_trial(1).epoch(2, 1, replica=1).fail_trial(3, replica=2, kind="nan")
    run.at(10).start_trial(4, 0, round_number=2)
    run.at(12).replicas[0].append(TrialEnded(trial=4, reason="stopped"))
    run.at(20).primary.append(RunResumed())
    ledger = ledger_of(run)
    work: WorkList = open_work(CONFIG, ledger)
    assert [take(work, 0).resumes, take(work, 1).resumes] == [2, 4]
    jobs = [take(work, replica) for replica in range(3)]
    assert [job.round for job in jobs] == [3, 2, 1]
    assert jobs[-1].trial == 9
    # The work of the interrupted epochs does not count, completed epochs do.
    assert ledger.died_ms(ledger.trials[4]) is not None
    assert len(ledger.trials[2].epochs) == 1


def test_an_interrupted_run_knows_how_often_a_training_was_resumed(tmp_path: Path) -> None:
    """A training that takes its replica along must not do so again after each new primary."""
    run = HandMadeRun(tmp_path).at(0).release(100, replicas=1).at(1).start_trial(1)
    for attempt in range(MAX_RESUMPTIONS):
        run.at(5 * attempt + 5).primary.append(RunResumed())
        run.at(5 * attempt + 6).start_trial(2 + attempt, resumes=1 + attempt)
    run.at(30).primary.append(RunResumed())
    assert take(open_work(CONFIG, ledger_of(run)), 0).resumes is None


def test_the_fold_does_not_depend_on_the_order_of_losses_and_returns(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100)
    run.at(1).start_trial(1).at(5).lose(0)
    records = HistoryReader(run.paths).read_new().records
    for order in (records, records[::-1]):
        ledger = Ledger()
        ledger.add(order)
        lost = ledger.replica(0).lost
        assert lost is not None
        assert ledger.died_ms(ledger.trials[1]) == lost.time_ms
