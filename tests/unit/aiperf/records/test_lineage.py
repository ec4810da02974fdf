"""The epochs of a training that several trials have done."""

from pathlib import Path

from aiperf.records.history_files import HistoryReader
from aiperf.records.ledger import Ledger
from aiperf.records.lineage import best_quality, epochs_of_training, first_ranks
from search_space.resnet import resnet
from tests.support.hand_made import HandMadeRun


def correct_by_epoch(run: HandMadeRun, trial: int) -> dict[int, int | None]:
    ledger = Ledger()
    ledger.add(HistoryReader(run.paths).read_new().records)
    return {number: epoch.correct for number, epoch in epochs_of_training(ledger, trial).items()}


def test_epochs_after_the_checkpoint_are_those_of_the_trial_that_resumes(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100)
    run.start_trial(1).epoch(1, 1, correct=10).epoch(1, 2, correct=350).epoch(1, 3, correct=30)
    run.start_trial(2, resumes=1)
    assert correct_by_epoch(run, 2) == {1: 10, 2: 350, 3: 30}, "the checkpoint's epoch is not known yet"
    run.epoch(2, 3, correct=33).epoch(2, 4, correct=44)
    run.start_trial(3, resumes=2).epoch(3, 5, correct=55)
    assert correct_by_epoch(run, 3) == {1: 10, 2: 350, 3: 33, 4: 44, 5: 55}
    ledger = Ledger()
    ledger.add(HistoryReader(run.paths).read_new().records)
    assert best_quality(ledger, 3) == 350 / 360
    assert best_quality(ledger, 9) is None


def test_another_architecture_is_another_training(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100)
    run.start_trial(1).epoch(1, 1)
    run.architecture = resnet(101, 32, 10)
    run.start_trial(2, resumes=1).epoch(2, 2, correct=20)
    assert correct_by_epoch(run, 2) == {2: 20}


def test_records_that_contradict_each_other_do_not_lead_in_a_circle(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100)
    run.start_trial(1, resumes=2).epoch(1, 1).start_trial(2, resumes=1).epoch(2, 2)
    assert list(correct_by_epoch(run, 2)) == [1, 2]


def test_the_first_ranks_are_those_that_trained_the_first_epoch(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100)
    run.start_trial(1).built(1, devices=("cpu",) * 3)
    run.start_trial(2, resumes=1).built(2, devices=("cpu",) * 2).epoch(2, 1)
    run.start_trial(3, resumes=2).built(3).epoch(3, 2).start_trial(4, resumes=3)
    ledger = Ledger()
    ledger.add(HistoryReader(run.paths).read_new().records)
    assert [first_ranks(ledger, trial) for trial in (1, 2, 3, 4)] == [None, 2, 2, 2]
