"""NNI's trial process, the primary's environment under NNI, and the checks before a run."""

import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from nni.experiment import launcher

from aiperf.config.settings import load_config
from aiperf.errors import EnvironmentNotReadyError
from aiperf.facts import EpochFacts
from aiperf.machine.addresses import without_proxy
from aiperf.records.bodies import TrialEnded
from primary import preflight
from primary.nni.experiment import StorageNote
from primary.nni.start import MANAGER_WORD, SILENT, patient_start, state_of
from primary.nni.trial import End, Follower, final_metrics
from primary.nni.tuner import KEPT_VISIBLE, primary_environment
from tests.support.hand_made import HandMadeRun, ManualClock


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


def test_a_trial_imports_no_distributions_and_no_tables() -> None:
    program = (
        "import sys, primary.nni.trial; print({'pandas', 'scipy.stats'} & sys.modules.keys());"
        "import scipy.stats; print(scipy.stats.norm.cdf(0))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown.split("\n") == ["set()", "0.5", ""], "afterwards all can be imported"


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


def test_a_manager_that_is_suspended_is_no_manager_that_has_ended() -> None:
    def does_not_answer() -> str:
        raise requests.Timeout

    experiment: Any = SimpleNamespace(get_status=does_not_answer)
    program = [sys.executable, "-c", "print(flush=True); input()", MANAGER_WORD]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as manager:
        assert manager.stdout is not None
        manager.stdout.readline()
        assert state_of(experiment) == SILENT
        manager.kill()
        manager.wait()
        assert state_of(experiment) is None
    experiment.get_status = lambda: "RUNNING"
    assert state_of(experiment) == "RUNNING"


def test_it_is_said_when_the_run_directory_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, folder = ManualClock(), tmp_path / "run"
    folder.write_text("")
    note = StorageNote(folder, clock)
    for _ in range(20):
        note.look()
        clock.pause(1)
    folder.unlink()
    folder.mkdir()
    for _ in range(20):
        note.look()
        clock.pause(1)
    refused, mended = capsys.readouterr().err.splitlines()
    assert refused.startswith(f"the run waits for storage: {folder} cannot be written: ")
    assert mended == "the run can write again"


class _OtherManager(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


def test_no_experiment_is_started_in_the_manager_of_another_command() -> None:
    with HTTPServer(("127.0.0.1", 0), _OtherManager) as server, patient_start(ManualClock()):
        threading.Thread(target=server.serve_forever).start()
        port = server.server_port
        try:
            with pytest.raises(RuntimeError, match=f"port {port} is another process's"):
                launcher._check_rest_server(port)
        finally:
            server.shutdown()


@pytest.mark.parametrize("before", ["", "example.org, 10.0.0.1", "localhost"])
def test_the_manager_of_this_machine_is_asked_without_a_proxy(before: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://proxy.invalid:3128")
    monkeypatch.setenv("no_proxy", before)
    for name, value in without_proxy(os.environ).items():
        monkeypatch.setenv(name, value)
    for url in ("http://localhost:8080/x", "http://127.0.0.1:8080", "http://[::1]:8080"):
        assert requests.utils.should_bypass_proxies(url, None), url
    assert requests.utils.should_bypass_proxies("http://example.org", None) is before.startswith("example.org")
    assert without_proxy({"NO_PROXY": "*"}) == {}
