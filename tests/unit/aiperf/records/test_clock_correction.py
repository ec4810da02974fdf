"""Replicas with clocks of their own: the same events give the same score and the same timeline."""

from pathlib import Path

import pytest

from aiperf.records.bodies import PhaseBegan
from aiperf.records.history_files import HistoryReader
from aiperf.records.ledger import Ledger
from aiperf.run_directory.paths import open_run
from aiperf.wire.messages import Phase
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.model import Report
from tests.support.hand_made import T0_MS, HandMadeRun

AHEAD_S = [7, -5]
"""Seconds that the replicas' clocks are ahead of the primary's."""


def events(root: Path, ahead_s: int) -> HandMadeRun:
    """A run of 60 seconds: a completed trial, one that fails afterwards, one whose replica dies."""
    run = HandMadeRun(root, {"training.max_epochs": 4}).at(0).release(60, replicas=2, offset_ms=ahead_s * 1000)

    def phase(t_s: float, name: Phase, trial: int, replica: int = 0) -> None:
        run.at(t_s + ahead_s).replicas[replica].append(PhaseBegan(replica=replica, trial=trial, phase=name))

    phase(1, "search", 1)
    run.at(2 + ahead_s).start_trial(1)
    phase(3, "train", 1)
    run.at(10 + ahead_s).start_trial(2, replica=1)
    phase(10, "train", 2, replica=1)
    run.at(14 + ahead_s).progress(2, 1, 800, replica=1)
    run.at(15).lose(1)
    phase(18, "evaluate", 1)
    run.at(20 + ahead_s).epoch(1, 1, correct=180).end_trial(1)
    run.at(22 + ahead_s).start_trial(3)
    phase(22, "train", 3)
    run.at(58 + ahead_s).progress(3, 1, 900)
    run.at(61 + ahead_s).progress(3, 1, 1100)
    # It fails after the end of the run, so what it had done by then counts.
    run.at(63 + ahead_s).fail_trial(3)
    return run.end(60)


def report(run: HandMadeRun) -> Report:
    return build_report(read_run(open_run(run.paths.root)))


@pytest.mark.parametrize("ahead_s", AHEAD_S)
def test_a_clock_that_is_off_changes_neither_score_nor_timeline(tmp_path: Path, ahead_s: int) -> None:
    exact, off = report(events(tmp_path / "exact", 0)), report(events(tmp_path / "off", ahead_s))
    assert exact.score_ops
    assert off.score_ops == exact.score_ops
    assert off.timeline == exact.timeline
    assert off.trials == exact.trials
    assert off.replica_details == exact.replica_details
    assert [(trial.started_s, trial.ended_s) for trial in off.trials] == [(2.0, 20.0), (10.0, 15.0), (22.0, 60.0)]
    assert [trial.images_trained for trial in off.trials] == [1437, 0, 900]


@pytest.mark.parametrize("ahead_s", AHEAD_S)
def test_deaths_are_on_the_primarys_clock(tmp_path: Path, ahead_s: int) -> None:
    ledger = Ledger()
    ledger.add(HistoryReader(events(tmp_path, ahead_s).paths).read_new().records)
    assert ledger.died_ms(ledger.trials[1]) is None
    assert ledger.died_ms(ledger.trials[2]) == T0_MS + 15_000
    assert ledger.died_ms(ledger.trials[3]) == T0_MS + 63_000
    assert ledger.corrected("primary", T0_MS) == T0_MS
