"""Runs that go on otherwise than repetitions that begin with the same bits."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from aiperf.facts import EpochFacts
from aiperf.records.bodies import EpochCompleted
from aiperf.run_directory.step_evidence import read_rows, rows_of
from aiperf.wire.messages import Begin, TrainRequest
from analysis.reading.run_data import read_run
from referee.audit import repetitions
from referee.audit.comparison import EQUAL_AT_FIRST, breaking_off, epoch_breaking_off
from referee.audit.findings import Finding
from referee.audit.procedure import AuditOrder, audit
from referee.audit.repetitions import Repetition
from replica.agent.trial.rank_setup import RankSetup
from tests.support.forging import rewrite
from tests.support.forging.changes import of
from tests.support.hand_made import HandMadeRun

STEPS = np.arange(20)


def rows(changed: int | None = None, by: float = 1e-6) -> NDArray[np.void]:
    """Rows of 20 steps, those from one step on changed by a relative difference."""
    factors = np.where((changed or 100) <= STEPS + 1, 1 + by, 1.0)
    return rows_of(1, 2.5 * 0.97**STEPS * factors, 4.0 * 0.9**STEPS)


@pytest.mark.parametrize(("changed", "found"), [(None, None), (5, 5), (20, 20), (EQUAL_AT_FIRST, None), (1, None)])
def test_steps_break_off_only_after_equal_ones(changed: int | None, found: int | None) -> None:
    assert breaking_off(rows(), rows(changed)) == found


def test_too_few_steps_say_nothing() -> None:
    assert breaking_off(rows()[:3], rows(2)[:3]) is None


def facts(*weights: str) -> list[EpochFacts]:
    return [
        EpochFacts(
            epoch=number,
            images_trained=1437,
            images_evaluated=360,
            correct=300,
            loss=1.0,
            validation_loss=1.0,
            learning_rate=0.1,
            weights=each,
        )
        for number, each in enumerate(weights, start=1)
    ]


@pytest.mark.parametrize(
    ("again", "found"), [("abc", None), ("abd", 3), ("axc", 2), ("xbc", None), ("ab", None), ("xyz", None)]
)
def test_epochs_break_off_only_after_equal_ones(again: str, found: int | None) -> None:
    assert epoch_breaking_off(facts(*"abc"), facts(*again)) == found


def run_of_three_epochs(root: Path, device: str = "cpu") -> HandMadeRun:
    run = HandMadeRun(root)
    run.hyperparameters = {"batch_size": 64, "learning_rate": 0.1, "momentum": 0.9, "label_smoothing": 0.1}
    run.release(100).at(1).start_trial(1).built(1, devices=(device,))
    for epoch in (1, 2, 3):
        run.at(20 * epoch).epoch(1, epoch)
    return run.end_trial(1).end(100)


def honest_epochs(run: HandMadeRun, last: str | None = None) -> tuple[EpochFacts, ...]:
    """The epochs as a repetition gives them, the last one with other weights if these are given."""
    found = [epoch.body for epoch in read_run(run.paths).ledger.trials[1].epochs.values()]
    return (*found[:-1], replace(found[-1], weights=last) if last else found[-1])


def findings(
    run: HandMadeRun, monkeypatch: pytest.MonkeyPatch, outcomes: Sequence[Repetition], retrain: int
) -> tuple[list[Finding], list[int]]:
    """The findings of an audit whose repetitions come out like this, and the epochs asked for."""
    left, asked = list(outcomes), list[int]()

    async def repeat(setup: RankSetup, request: TrainRequest, begin: Begin, folder: Path) -> Repetition:
        asked.append(request.epochs)
        return left.pop(0)

    monkeypatch.setattr(repetitions, "repeat", repeat)
    result = audit(run.paths, AuditOrder("word", draws=1, retrain=retrain))
    return [finding for finding in result.findings if finding.check in ("steps", "retrain")], asked


def outcome(run: HandMadeRun, last: str | None = None) -> Repetition:
    return Repetition(read_rows(run.paths.evidence(1))[1], honest_epochs(run, last))


def passed(found: list[Finding], check: str) -> set[bool]:
    return {finding.passed for finding in found if finding.check == check}


def test_an_invented_last_epoch_is_found_if_two_repetitions_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of_three_epochs(tmp_path)
    found, asked = findings(run, monkeypatch, [outcome(run, "ab" * 32)] * 2, retrain=9)
    assert asked == [3, 3], "as many epochs as there are, and once more after the first difference"
    assert passed(found, "retrain") == {False}
    assert all("up to epoch 2, and others from epoch 3 on" in each.found for each in found if each.check == "retrain")


def test_repetitions_that_do_not_agree_accuse_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of_three_epochs(tmp_path)
    found, asked = findings(run, monkeypatch, [outcome(run, "ab" * 32), outcome(run, "cd" * 32)], retrain=3)
    assert (passed(found, "retrain"), len(asked)) == ({True}, 2)


def test_an_honest_run_is_repeated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of_three_epochs(tmp_path)
    found, asked = findings(run, monkeypatch, [outcome(run)], retrain=2)
    assert (passed(found, "retrain"), passed(found, "steps"), asked) == ({True}, {True}, [2])


def test_another_device_is_not_held_to_the_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accelerators choose algorithms anew in each process."""
    run = run_of_three_epochs(tmp_path, "NVIDIA H200")
    found, asked = findings(run, monkeypatch, [outcome(run, "ab" * 32)], retrain=3)
    assert (passed(found, "retrain"), asked) == ({True}, [3])


def test_rows_that_are_invented_after_the_first_steps_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of_three_epochs(tmp_path)
    true_rows = read_rows(run.paths.evidence(1))[1].copy()
    true_rows["loss"][12:] *= 1.01  # well within the tolerance of means
    again = Repetition(true_rows, ())
    found, asked = findings(run, monkeypatch, [again, again], retrain=0)
    assert (passed(found, "steps"), len(asked)) == ({False}, 2)
    # Of the drawn epoch and the deciding one, which may be the same.
    assert {each.found.rpartition(" up to ")[2] for each in found} == {"step 12, and others from step 13 on"}


def counted(run: HandMadeRun, right: int, last: str | None = None) -> Repetition:
    """A repetition that had this many right answers in its last epoch."""
    *first, final = honest_epochs(run, last)
    return Repetition(read_rows(run.paths.evidence(1))[1], (*first, replace(final, correct_trained=right)))


@pytest.mark.parametrize(
    ("right", "last", "passes"),
    [(700, None, True), (701, None, False), (701, "ab" * 32, True), (300, "ab" * 32, True), (100, "ab" * 32, False)],
)
def test_right_answers_of_training_are_counted_again(
    right: int, last: str | None, passes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly if the weights are the same; else within 30 % of the images."""
    run = run_of_three_epochs(tmp_path, "NVIDIA H200")
    rewrite(run.paths, of(EpochCompleted, 1, 3, correct_trained=700))
    found, _ = findings(run, monkeypatch, [counted(run, right, last)], retrain=3)
    assert passed(found, "retrain") == {passes}
