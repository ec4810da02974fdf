"""Audits of hand-made runs: what needs no training to be found."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aiperf.config.settings import load_config
from aiperf.errors import TrialFailedError, UsageError
from aiperf.facts import EpochFacts
from aiperf.records.bodies import EpochCompleted
from aiperf.records.run_head import final_head
from aiperf.rules.schedule import Assignment
from aiperf.run_directory.paths import RunPaths
from aiperf.run_directory.step_evidence import append_rows, hash_rows, rows_of
from analysis.reading.run_data import read_run
from analysis.results.signatures import FIRST_LINE, stated_head
from referee.audit import repetitions
from referee.audit.draws import Claim
from referee.audit.findings import AuditResult
from referee.audit.procedure import AuditOrder, audit
from referee.audit.recorded import Recorded
from replica.agent.trial.requests import TrialTraining, train_request
from tests.support.driver import FakeDriver
from tests.support.hand_made import HandMadeRun, aiperf_here

ORDER = AuditOrder(nonce="word")


@pytest.fixture(autouse=True)
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """These audits end before a training: what they find is in the records."""

    async def refuse(*_: object) -> None:
        raise TrialFailedError("start", "not in this test")

    monkeypatch.setattr(repetitions, "repeat", refuse)


class Run(HandMadeRun):
    """A hand-made run with evidence."""

    def trained(self, trial: int, epoch: int, correct: int = 300, evidence: str | None = None) -> Run:
        steps = np.arange(23)
        rows = rows_of(epoch, (2.5 - 0.1 * epoch) * 0.97**steps, (4.0 - 0.1 * epoch) * 0.9**steps)
        append_rows(self.paths.evidence(trial), rows)
        images = np.array([64] * 22 + [1437 - 22 * 64])
        self.replicas[0].append(
            EpochCompleted(
                trial=trial,
                epoch=epoch,
                images_trained=1437,
                images_evaluated=360,
                correct=correct,
                loss=float((rows["loss"] * images).sum() / 1437),
                validation_loss=1.0,
                learning_rate=0.1,
                evidence=evidence or hash_rows(rows),
                weights=f"{trial:032d}{epoch:032d}",
            )
        )
        return self


def start(root: Path) -> Run:
    run = Run(root)
    run.hyperparameters = {"batch_size": 64, "learning_rate": 0.1, "momentum": 0.9, "label_smoothing": 0.1}
    run.release(60).at(1).start_trial(1)
    return run


def of(result: AuditResult, check: str, passed: bool) -> list[tuple[int, int]]:
    return sorted((each.trial, each.epoch) for each in result.findings if (each.check, each.passed) == (check, passed))


def test_rows_are_those_of_the_record_and_what_cannot_be_repeated_has_not_passed(tmp_path: Path) -> None:
    run = start(tmp_path).trained(1, 1).trained(1, 2, correct=310)
    run.end_trial(1).end(60)
    result = audit(run.paths, ORDER)
    assert of(result, "rows", True) == [(1, 1), (1, 2)]
    assert of(result, "steps", False) == [(1, 1), (1, 2)]
    assert result.head == final_head(run.paths)
    (deciding,) = [finding for finding in result.findings if finding.check == "weights"]
    assert (deciding.epoch, deciding.passed) == (2, False)
    assert "not kept" in deciding.found
    assert (deciding.done, deciding.result) == (False, "NOT DONE")
    assert result.verdict == "failed"
    left = tuple(each for each in result.findings if each.passed or not each.done)
    only = replace(result, problems=(), findings=left)
    assert (only.verdict, only.passed) == ("incomplete", False), "what is missing speaks against nobody"
    assert replace(only, problems=("damage",)).verdict == "failed"
    assert replace(only, findings=()).verdict == "failed", "nothing was checked"


def test_rows_that_are_not_those_of_the_record_are_found(tmp_path: Path) -> None:
    run = start(tmp_path).trained(1, 1).trained(1, 2, evidence="0" * 64).trained(1, 3)
    file = run.paths.evidence(1)
    file.write_bytes(file.read_bytes()[: -16 * 23])
    run.end_trial(1).end(60)
    result = audit(run.paths, ORDER)
    assert of(result, "rows", False) == [(1, 2), (1, 3)]


def test_the_epoch_that_decides_the_error_is_drawn_on_top(tmp_path: Path) -> None:
    run = start(tmp_path)
    for epoch in range(1, 30):
        run.at(1 + epoch)
        run.trained(1, epoch, correct=350 if epoch == 17 else 300)
    run.end_trial(1).end(60)
    places = [
        {finding.epoch for finding in audit(run.paths, AuditOrder(nonce=nonce, draws=1)).findings}
        for nonce in ("1", "2", "3")
    ]
    assert all(17 in found for found in places)
    assert {len(found) for found in places} <= {1, 2}


def test_epochs_after_the_end_are_not_drawn_and_open_ones_are_named(tmp_path: Path) -> None:
    run = start(tmp_path)
    run.at(20)
    run.trained(1, 1)
    run.at(30).progress(1, 2, 700)
    run.at(39).end_trial(1).end(40)
    result = audit(run.paths, ORDER)
    assert {finding.epoch for finding in result.findings} == {1}
    assert any("unfinished epochs" in note for note in result.notes)


def test_the_plans_of_drawn_trials_are_replayed(tmp_path: Path) -> None:
    run = start(tmp_path).trained(1, 1)
    run.end_trial(1).end(60)

    def replay(paths: RunPaths, trials: Collection[int]) -> dict[int, str]:
        assert (paths, set(trials)) == (run.paths, {1})
        return {1: "architecture is a, the replay gives b"}

    assert of(audit(run.paths, ORDER, replay), "replay", False) == [(1, 1)]
    assert of(audit(run.paths, ORDER, lambda *_: {1: ""}), "replay", True) == [(1, 1)]


def test_the_request_is_the_one_of_the_run(tmp_path: Path) -> None:
    run = start(tmp_path)
    run.hyperparameters = {"batch_size": 32, "learning_rate": 0.05, "momentum": 0.8, "label_smoothing": 0.2}
    run.start_trial(2, round_number=3)
    run.trained(2, 1).end(60)
    recorded = Recorded(run.paths, read_run(run.paths))
    seed = Assignment(3).seed(run.config, 0)
    training = TrialTraining(run.architecture.hash, run.hyperparameters, 3, seed, "float32")
    assert recorded.request(recorded.ledger(2), None) == train_request(run.config, run.paths, training)
    assert recorded.request(recorded.ledger(2), tmp_path).data_dir == str(tmp_path)
    assert recorded.claims() == [Claim(2, 1, recorded.claims()[0].operations)]


def test_a_trial_that_resumes_is_checked_by_the_one_that_began(tmp_path: Path) -> None:
    run = start(tmp_path).trained(1, 1).trained(1, 2)
    run.start_trial(2, resumes=1)
    run.trained(2, 3).end_trial(2).end(60)
    recorded = Recorded(run.paths, read_run(run.paths))
    assert recorded.origin(2).trial == 1
    assert isinstance(recorded.facts(2, 1), EpochFacts)
    with pytest.raises(KeyError):
        recorded.facts(1, 3)


def test_several_ranks_need_horovod_for_tensorflow_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    FakeDriver.remove(monkeypatch.setattr)

    def ranks(framework: str) -> int:
        config = load_config(overrides={"run.dataset": "digits", "training.framework": framework})
        return repetitions.ranks_here(config, 2).ranks

    assert (ranks("torch"), ranks("jax")) == (2, 2)
    with pytest.raises(TrialFailedError, match="Horovod is not installed here"):
        ranks("tensorflow")


def test_a_run_without_an_epoch_has_nothing_to_draw(tmp_path: Path) -> None:
    run = start(tmp_path)
    run.end(60)
    result = audit(run.paths, ORDER)
    assert result.findings == ()
    assert any("nothing to draw" in problem for problem in result.problems)
    assert result.verdict == "failed"


def test_a_simulated_run_has_not_trained_and_damaged_records_fail(tmp_path: Path) -> None:
    simulated = Run(tmp_path / "1", {"training.trainer": "simulated"})
    simulated.release(60).start_trial(1).epoch(1, 1).end(60)
    result = audit(simulated.paths, ORDER)
    assert any("simulated trainer" in problem for problem in result.problems)
    assert result.findings == ()
    damaged = start(tmp_path / "2").trained(1, 1)
    damaged.end(60)
    file = damaged.paths.history_file("primary-1")
    file.write_bytes(file.read_bytes().replace(b"run_ended", b"run_endet"))
    assert any("damage" in problem for problem in audit(damaged.paths, ORDER).problems)


def test_another_head_than_that_of_the_statement_fails(tmp_path: Path) -> None:
    run = start(tmp_path / "run").trained(1, 1)
    run.end_trial(1).end(60)
    head = final_head(run.paths)
    same, other, none = (audit(run.paths, replace(ORDER, head=each)) for each in (head, "0" * 64, None))
    assert not any("the statement" in problem for problem in same.problems)
    assert [problem for problem in other.problems if f"its head is {head}" in problem]
    assert [any("--statement" in note for note in each.notes) for each in (same, other, none)] == [False, False, True]


def test_a_statement_names_one_head(tmp_path: Path) -> None:
    file = tmp_path / "STATEMENT"
    file.write_text(f'{FIRST_LINE}\nrun: "a"\nhead: {"ab" * 32}\nscore: AIPerf\n')
    assert stated_head(file) == "ab" * 32
    for text in ("", "head: 1\n", f"{FIRST_LINE}\n", f"{FIRST_LINE}\nhead: 1\nhead: 2\n"):
        file.write_text(text)
        with pytest.raises(UsageError, match="is not the statement"):
            stated_head(file)


def test_a_wrong_nonce_or_number_is_a_usage_error(tmp_path: Path) -> None:
    assert aiperf_here("audit", tmp_path).returncode == 2
    assert aiperf_here("audit", tmp_path, "--nonce", " ").returncode == 2
    assert aiperf_here("audit", tmp_path, "--nonce", "word", "--draws", "0").returncode == 2
    assert aiperf_here("audit", tmp_path, "--nonce", "word").returncode == 2, "not a run"
