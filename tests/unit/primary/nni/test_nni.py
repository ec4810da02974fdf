"""NNI's trial process, the primary's environment under NNI, and the checks before a run."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from aiperf.config.settings import load_config
from aiperf.errors import EnvironmentNotReadyError
from aiperf.facts import EpochFacts
from aiperf.history.bodies import TrialEnded
from primary import preflight
from primary.nni.follower import End, Follower
from primary.nni.trial import final_metrics
from primary.nni.tuner import KEPT_VISIBLE, primary_environment
from testing.hand_made import HandMadeRun


def accuracies(news: list[EpochFacts | End]) -> list[float | None]:
    return [item.accuracy for item in news if isinstance(item, EpochFacts)]


@pytest.fixture
def run(tmp_path: Path) -> HandMadeRun:
    return HandMadeRun(tmp_path).release(100, replicas=2).at(1).start_trial(1).start_trial(2, replica=1)


def test_each_epoch_of_the_trial_is_reported_once_and_no_other(run: HandMadeRun) -> None:
    follower = Follower(run.paths, trial=1, replica=0)
    assert list(follower.look()) == []
    run.at(2).epoch(1, 1, correct=90).epoch(2, 1, correct=180, replica=1)
    assert accuracies(list(follower.look())) == [0.25]
    assert list(follower.look()) == []
    run.at(3).epoch(1, 2, correct=270)
    run.at(4).end_trial(1)
    epoch, end = follower.look()
    assert isinstance(epoch, EpochFacts)
    assert (epoch.epoch, epoch.quality) == (2, 0.75)
    assert end == End(0.75, 0.75)


def test_the_final_result_is_measured_and_the_prediction_stands_next_to_it(run: HandMadeRun) -> None:
    run.at(2).epoch(1, 1, correct=270)
    run.replicas[0].append(TrialEnded(trial=1, reason="completed", predicted_accuracy=0.99))
    *_, end = Follower(run.paths, 1, 0).look()
    assert isinstance(end, End)
    assert final_metrics(end) == {"default": 0.75, "search_accuracy": 0.99}


def test_a_failure_is_reported_with_its_reason(run: HandMadeRun) -> None:
    run.at(2).epoch(1, 1).at(3).fail_trial(1)
    *_, end = Follower(run.paths, 1, 0).look()
    assert end == End(300 / 360, failure="crash: gone")


def test_a_lost_replica_ends_its_trial_and_no_other(run: HandMadeRun) -> None:
    run.at(5).lose(0)
    assert list(Follower(run.paths, 1, 0).look()) == [End(None, failure="its replica or its primary was lost")]
    assert list(Follower(run.paths, 2, 1).look()) == []


def test_a_trial_that_the_end_of_the_run_interrupted_has_no_result(run: HandMadeRun) -> None:
    run.at(2).epoch(1, 1, correct=90)
    run.replicas[0].append(TrialEnded(trial=1, reason="stopped"))
    *_, end = Follower(run.paths, 1, 0).look()
    assert end == End(0.25)


def test_without_nni_the_command_that_installs_it_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nni", None)
    config = load_config(overrides={"run.dataset": "digits", "run.manager": "nni", "training.trainer": "simulated"})
    with pytest.raises(EnvironmentNotReadyError, match=r"pip install '\.\[nni\]'"):
        preflight.check(config, tmp_path / "run")


def test_a_taken_port_is_reported_before_anything_is_written(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = {"run.dataset": "digits", "run.manager": "nni", "training.trainer": "simulated", "nni.port": port}
        with pytest.raises(EnvironmentNotReadyError, match=f"nni.port: {port} is taken"):
            preflight.check(load_config(overrides=settings), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_the_primary_gets_the_devices_that_nni_hides_from_its_tuner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("NNI_MODE", "start")
    monkeypatch.delenv(KEPT_VISIBLE, raising=False)
    assert {"CUDA_VISIBLE_DEVICES", "NNI_MODE"}.isdisjoint(primary_environment())
    monkeypatch.setenv(KEPT_VISIBLE, "2,3")
    assert primary_environment()["CUDA_VISIBLE_DEVICES"] == "2,3"
