"""The primary's records after the end of a run: they move neither its end nor its score."""

from pathlib import Path

from aiperf.config.settings import load_config
from aiperf.records.bodies import EpochWitnessed, RunResumed, TrialClosed, TrialEnded
from aiperf.records.ledger import Ledger
from aiperf.records.reading import read_ledger
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from primary.work import open_work
from tests.support.hand_made import T0_MS, HandMadeRun
from tests.support.trainings.jobs import take


def ended(root: Path, witnessed: bool) -> HandMadeRun:
    """Trial 1 is stopped, trial 2 fell silent before the end, trial 3 was never started."""
    run = HandMadeRun(root).at(0).release(600, replicas=2).at(1).start_trial(1).start_trial(2, replica=1)
    run.at(20).epoch(1, 1).at(25).epoch(2, 1, replica=1).at(590).progress(2, 2, 500, replica=1).end(600)
    run.at(601).replicas[0].append(TrialEnded(trial=1, reason="stopped"))
    if witnessed:
        digest = "0" * 64
        run.at(602).primary.append(EpochWitnessed(trial=1, epoch=1, writer="replica-0000-1", sequence=1, digest=digest))
        for trial in (1, 2, 3):
            run.at(620).primary.append(TrialClosed(trial=trial, how="lost", writer="w", sequence=2, digest=digest))
    return run


def test_closings_after_the_end_change_nothing_that_counts(tmp_path: Path) -> None:
    ledgers, reports = [], []
    for witnessed in (False, True):
        run = ended(tmp_path / str(witnessed), witnessed)
        ledgers.append(read_ledger(run.paths))
        reports.append(build_report(read_run(run.paths)))
    bare, full = ledgers
    assert [full.trials[trial].closed is not None for trial in (1, 2, 3)] == [True] * 3
    assert bare.run_ended == full.run_ended is not None
    for trial in (1, 2):
        assert [ledger.fell_silent_ms(ledger.trials[trial]) for ledger in ledgers] == [
            None if trial == 1 else T0_MS + 590_000
        ] * 2
    assert reports[0].timeline == reports[1].timeline
    assert reports[0].operations_total == reports[1].operations_total > 0
    assert [trial.state for trial in reports[0].trials] == [trial.state for trial in reports[1].trials][:2]


def test_a_trial_that_was_never_started_is_closed(tmp_path: Path) -> None:
    ledger: Ledger = read_ledger(ended(tmp_path, True).paths)
    never = ledger.trials[3]
    assert (never.started, never.closed is not None, ledger.died_ms(never)) == (None, True, None)
    assert ledger.fell_silent_ms(never) is None


def test_closings_do_not_hide_what_a_resumption_has_to_repeat(tmp_path: Path) -> None:
    run = ended(tmp_path, True)
    run.at(700).primary.append(RunResumed())
    ledger = read_ledger(run.paths)
    assert ledger.run_ended is None
    work = open_work(load_config(overrides={"run.dataset": "digits"}), ledger)
    assert [take(work, replica).resumes for replica in range(3)] == [1, 2, None]
