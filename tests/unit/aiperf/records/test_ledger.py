"""The ledger: the same state for any order of records, corrected clocks, deaths and conflicts."""

import random
from pathlib import Path

from aiperf.network.operations import Operations
from aiperf.records.bodies import EpochCompleted, RunResumed, TrialEnded
from aiperf.records.columns import EPOCH
from aiperf.records.history_files import HistoryReader
from aiperf.records.ledger import Ledger
from aiperf.records.lineage import best_quality
from aiperf.records.record import Record
from aiperf.rules.work import WorkColumns
from analysis.reading.work import Work
from tests.support.hand_made import T0_MS, HandMadeRun


def records(root: Path) -> tuple[Record, ...]:
    run = HandMadeRun(root).at(0).release(600, replicas=2, offset_ms=5000)
    run.at(1).start_trial(1).at(10).progress(1, 1, 700).at(20).epoch(1, 1).at(30).end_trial(1)
    run.at(2).start_trial(2, replica=1).at(25).epoch(2, 1, replica=1).at(40).lose(1)
    run.end(600)
    return HistoryReader(run.paths).read_new().records


def folded(items: tuple[Record, ...]) -> Ledger:
    ledger = Ledger()
    ledger.add(items)
    return ledger


def work_of(ledger: Ledger) -> WorkColumns:
    """The work of all trials, at any time."""
    return Work(ledger, dict.fromkeys(ledger.trials, Operations(1, 2)), 0, T0_MS + 10**9).columns


def test_the_fold_does_not_depend_on_the_order_of_records_or_on_repetition(tmp_path: Path) -> None:
    items = records(tmp_path)
    expected = folded(items)
    for seed in range(20):
        shuffled = random.Random(seed).sample(items, len(items))
        assert folded((*shuffled, *shuffled[:5])) == expected


def test_only_the_furthest_report_is_kept_if_no_more_is_wanted(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(600).at(1).start_trial(1)
    for t_s, epoch, images in ((2, 1, 100), (3, 1, 900), (5, 2, 50), (6, 2, 40)):
        run.at(t_s).progress(1, epoch, images)
    items = HistoryReader(run.paths).read_new().records
    for seed in range(10):
        ledger = Ledger(latest_progress_only=True)
        ledger.add(random.Random(seed).sample(items, len(items)))
        assert ledger.trials[1].progress[:, EPOCH:].tolist() == [[2, 50, 0]]


def test_times_are_corrected_by_the_offset_of_the_writers_clock(tmp_path: Path) -> None:
    ledger = folded(records(tmp_path))
    work = work_of(ledger)
    assert work.epochs[work.epochs[:, 0] == 0, 1].tolist() == [T0_MS + 15_000]
    assert work.reports[:, 1].tolist() == [T0_MS + 5_000]


def test_a_trial_dies_with_its_replica_unless_it_ended_before(tmp_path: Path) -> None:
    ledger = folded(records(tmp_path))
    assert ledger.died_ms(ledger.trials[1]) is None
    assert ledger.died_ms(ledger.trials[2]) == T0_MS + 40_000


def work_at_the_end(run: HandMadeRun) -> int:
    ledger = folded(HistoryReader(run.paths).read_new().records)
    return int(work_of(ledger).operations_done(T0_MS + 600_000)[0])


def test_an_unfinished_epoch_counts_only_if_its_replica_was_alive_at_the_end(tmp_path: Path) -> None:
    def run(name: str) -> HandMadeRun:
        made = HandMadeRun(tmp_path / name).at(0).release(600, offset_ms=5000)
        return made.at(5).start_trial(1).at(50).epoch(1, 1).at(595).progress(1, 2, 500)

    epoch = 1437 * 3 + 360
    assert work_at_the_end(run("running")) == epoch + 500 * 3
    silent = run("silent").end(600)
    assert work_at_the_end(silent) == epoch, "it died within replica_silence before the end"
    ledger = folded(HistoryReader(silent.paths).read_new().records)
    assert work_of(ledger).died_ms[0] == T0_MS + 590_000
    stopped = run("stopped").end(600)
    stopped.at(606).replicas[0].append(TrialEnded(trial=1, reason="stopped"))
    assert work_at_the_end(stopped) == epoch + 500 * 3
    late = run("late").end(600).at(606).progress(1, 2, 600)
    assert work_at_the_end(late) == epoch + 500 * 3, "it was killed after the end"
    resumed = run("resumed").end(600)
    resumed.at(700).primary.append(RunResumed())
    ledger = folded(HistoryReader(resumed.paths).read_new().records)
    assert work_of(ledger).died_ms[0] == T0_MS + 700_000


def test_contradicting_records_are_reported(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(600, replicas=2).at(1).start_trial(1).at(2).epoch(1, 1)
    run.at(3).epoch(1, 1, correct=10, replica=1).at(4).start_trial(1, replica=1)
    ledger = folded(HistoryReader(run.paths).read_new().records)
    assert sorted(conflict.found for conflict in ledger.conflicts) == [
        "trial 1 completed epoch 1 twice",
        "trial 1 was started twice, by replica-0000-1 and replica-0001-1",
    ]


def test_a_workload_that_does_not_count_correct_images_has_a_quality(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(600).at(1).start_trial(1)
    run.at(9).replicas[0].append(
        EpochCompleted(
            trial=1,
            epoch=1,
            images_trained=10,
            images_evaluated=5,
            loss=1.0,
            validation_loss=1.0,
            learning_rate=0.1,
            measured_quality=0.8,
        )
    )
    run.end_trial(1)
    ledger = folded(HistoryReader(run.paths).read_new().records)
    assert ledger.trials[1].accuracy is None
    assert ledger.trials[1].quality == ledger.trials[1].search_accuracy == best_quality(ledger, 1) == 0.8
