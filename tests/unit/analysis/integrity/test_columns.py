"""Records in columns: honest ones become no objects, and damages are found all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.records.bodies import EpochCompleted
from analysis.reading import history
from analysis.reading.integrity import witness
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from tests.support.hand_made import HandMadeRun


def made(root: Path, *images: int, at_s: float = 200) -> HandMadeRun:
    """A run of two hours with progress in an epoch, and at its end in an open one."""
    run = HandMadeRun(root).at(0).release(7200).at(1).start_trial(1)
    for step, trained in enumerate(images):
        run.at(at_s + step * 100).progress(1, 1, trained)
    run.at(1000).epoch(1, 1)
    for step in range(4):
        run.at(2000 + step * 100).progress(1, 2, 100 * step)
    return run.end(7200)


def test_reports_of_an_honest_run_stay_in_columns_but_for_the_last_of_an_open_epoch(tmp_path: Path) -> None:
    run = made(tmp_path, 100, 200, 300)
    data = read_run(run.paths)
    assert data.damages == ()
    assert data.reports[1][:, 5].tolist() == [100, 200, 300, 0, 100, 200]
    assert [report.body.images_trained for report in data.ledger.trials[1].progress] == [300]
    assert len(data.work[1].progress) == 7


@pytest.mark.parametrize("images", [(100, 200, 150), (100, 10**9)])
def test_reports_that_a_check_finds_are_records(tmp_path: Path, images: tuple[int, ...],
                                                monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    run = made(tmp_path, *images)
    found = read_run(run.paths)
    assert not found.reports
    assert {damage.kind for damage in found.damages} == {"bounds"}
    monkeypatch.setattr(history, "usual_lines", lambda *_: None)  # line by line
    assert read_run(run.paths).damages == found.damages


@pytest.mark.parametrize(("later_s", "times", "kinds"), [(0, 1, set()), (4000, 1, {"time"}), (0, 2, {"witness"})])
def test_witnesses_are_compared_together_as_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later_s: float, times: int, kinds: set[str]
) -> None:
    run = HandMadeRun(tmp_path).at(0).release(7200).at(1).start_trial(1).at(1000).epoch(1, 1).at(2000)
    second = EpochCompleted(trial=1, epoch=2, images_trained=1437, images_evaluated=360, correct=300, loss=1.0,
                            validation_loss=1.0, learning_rate=run.learning_rate(2))  # fmt: skip
    second = run._evident(second)
    run.replicas[0].append(second)
    for _ in range(times):
        run.at(2000 + later_s)._witness(0, second)
    found = read_run(run.end(7200).paths).damages
    assert {damage.kind for damage in found} == kinds
    monkeypatch.setattr(witness, "_is_as_heard", lambda *_: False)
    monkeypatch.setattr(witness, "_none_is_late", lambda *_: False)
    assert read_run(run.paths).damages == found


def epochs(root: Path, **changed: object) -> HandMadeRun:
    """A run of two hours with two epochs, the second of which is changed."""
    run = HandMadeRun(root).at(0).release(7200).at(1).start_trial(1).at(500).progress(1, 1, 700)
    run.at(1000).epoch(1, 1).at(1500).progress(1, 2, 10).at(2000)
    facts = {"trial": 1, "epoch": 2, "images_trained": 1437, "images_evaluated": 360, "correct": 310, "loss": 1.0,
             "validation_loss": 1.0, "learning_rate": run.learning_rate(2)}  # fmt: skip
    return run.completed(0, EpochCompleted(**{**facts, **changed})).end(7200)  # type: ignore[arg-type]


def test_epochs_of_an_honest_run_stay_in_columns_and_say_the_same_as_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = epochs(tmp_path)
    found = read_run(run.paths)
    own = found.ledger.trials[1].epochs
    assert own.columns is not None
    assert found.damages == ()
    assert (1 in own, 2 in own, 3 in own, len(own)) == (True, True, False, 2)
    monkeypatch.setattr(history, "epoch_columns", lambda *_: None)
    as_records = read_run(run.paths)
    assert as_records.ledger.trials[1].epochs.columns is None
    assert dict(as_records.ledger.trials[1].epochs) == dict(own)
    assert as_records.work[1] == found.work[1]
    assert build_report(as_records) == build_report(found)


@pytest.mark.parametrize(
    "changed",
    [{"epoch": 3}, {"epoch": 1}, {"trial": 2}, {"images_trained": 1436}, {"correct": 361}, {"learning_rate": 0.5},
     {"learning_rate": -0.1}, {"measured_quality": 0.9}, {"evidence": "no hash"}],
    ids=str,
)  # fmt: skip
def test_an_epoch_that_a_check_finds_is_a_record(
    tmp_path: Path, changed: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = epochs(tmp_path, **changed)
    found = read_run(run.paths)
    assert found.ledger.trials[1].epochs.columns is None
    assert found.damages
    monkeypatch.setattr(history, "epoch_columns", lambda *_: None)
    assert read_run(run.paths).damages == found.damages
    monkeypatch.setattr(history, "usual_lines", lambda *_: None)  # line by line
    assert read_run(run.paths).damages == found.damages
