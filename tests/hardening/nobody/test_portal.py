"""NNI's portal of a run in progress, asked by another user, by web pages, and by its owner."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import nni
import pytest
from nni.runtime.trial_command_channel.v3 import TrialCommandChannelV3
from websockets.sync.server import ServerConnection, serve

from primary.nni.library import read_plainly
from tests.hardening.nobody.conftest import LiveRun
from tests.support.outsiders.strangers import as_nobody, ask, need_root
from tests.support.portal import loopback_addresses
from tests.support.processes import command

API = "/api/v1/nni"
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def code_that_makes(marker: Path) -> dict[str, Any]:
    """A document whose reading by NNI makes a file."""
    return {"__symbol__": "path:os.system", "__args__": [f"touch {marker}"], "__kwargs__": {}}


NEVER = [
    ("PUT", f"{API}/experiment?update_type=SEARCH_SPACE"),
    ("PUT", f"{API}/experiment?update_type=MAX_TRIAL_NUM&update_type=SEARCH_SPACE"),
    ("PUT", f"{API}/experiment/?update_type=SEARCH_SPACE"),
    ("PUT", f"{API}/experiment?update%5Ftype=SEARCH_SPACE"),
    ("GET", f"{API}/trial-file/x/..%2f..%2f..%2f..%2f..%2frun.json"),
    ("GET", f"{API}/trial-file/..%2f..%2f..%2f..%2f..%2f/run.json"),
    ("GET", f"{API}/trial-file/x/..%5c..%5crun.json"),
    ("GET", f"{API}/trial-file/x/%2e%2e%2frun.json"),
    ("GET", f"{API}/trial-file/../run.json"),
    ("GET", f"http://127.0.0.1{API}/experiment"),
    ("POST", f"{API}/experiment/import-data"),
    ("PUT", f"{API}/experiment/cluster-metadata"),
    ("POST", f"{API}/trial-jobs"),
    ("POST", f"{API}/tensorboard"),
    ("GET", "/NETRON/index.html"),
    ("OPTIONS", f"{API}/experiment"),
]
"""Requests that no run needs, with which the portal would run programs or show files."""

USUAL = [
    ("GET", "/"),
    ("GET", f"{API}/check-status"),
    ("GET", f"{API}/experiment"),
    ("GET", f"{API}/trial-jobs"),
    ("GET", f"{API}/metric-data"),
    ("GET", "/logs/nnimanager.log"),
    ("PUT", f"{API}/experiment?update_type=MAX_EXEC_DURATION"),
    ("DELETE", f"{API}/experiment"),
    ("POST", f"{API}/experiment"),
    ("PUT", "/env/local-env/x"),
]
"""Requests of the portal's pages, of NNI's processes, and of `nnictl`."""


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_another_user_gets_nothing_from_the_portal(under_nni: LiveRun, address: str) -> None:
    need_root()
    if address not in loopback_addresses():
        pytest.skip("this machine has no IPv6")
    marker = under_nni.folder / "marker"
    body = json.dumps({"params": {"searchSpace": code_that_makes(marker), "maxExperimentDuration": "1s"}})
    with as_nobody():
        answers = {
            (method, target): ask(under_nni.port, target, method, body=body, address=address)
            for method, target in [*NEVER, *USUAL]
        }
        upgrade = ask(under_nni.port, "/tuner", headers=UPGRADE, address=address)
    assert {answer[0] for answer in [*answers.values(), upgrade]} == {403}
    assert len({answer[1] for answer in [*answers.values(), upgrade]}) == 1, "no answer depends on the request"
    assert under_nni.portal.status == "RUNNING"
    assert not marker.exists()


def test_a_request_of_a_process_that_has_ended_meanwhile_is_no_request_of_root(under_nni: LiveRun) -> None:
    """Kernels may show connections without a process as root's, who owns this run."""
    need_root()
    manager = next(process for process in under_nni.family() if "--trace-uncaught" in command(process))
    manager.send_signal(signal.SIGSTOP)
    try:
        with as_nobody(), socket.create_connection(("127.0.0.1", under_nni.port)) as connection:
            connection.sendall(f"DELETE {API}/experiment HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    finally:
        manager.send_signal(signal.SIGCONT)
    for _ in range(3):
        assert under_nni.portal.status == "RUNNING"


@pytest.mark.parametrize(("method", "target"), NEVER)
def test_nobody_may_ask_what_a_run_does_not_need(under_nni: LiveRun, method: str, target: str) -> None:
    marker = under_nni.folder / "marker"
    body = json.dumps({"params": {"searchSpace": code_that_makes(marker)}})
    assert ask(under_nni.port, target, method, body=body)[0] == 403
    assert not marker.exists()


@pytest.mark.parametrize("target", ["/tuner", "/TUNER/", "/%74uner?manager=1", f"/tuner?manager={'0' * 32}&manager="])
def test_the_tuner_of_another_manager_does_not_take_the_place_of_this_one_s(under_nni: LiveRun, target: str) -> None:
    """It asks the next manager at the port of its own, if that was killed."""
    status, reason = ask(under_nni.port, target, headers=UPGRADE)
    assert (status, b"this manager" in reason) == (403, True)
    assert under_nni.portal.status == "RUNNING"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ],
)
def test_web_pages_of_others_get_nothing(under_nni: LiveRun, headers: dict[str, str]) -> None:
    for target, more in (("/", {}), (f"{API}/experiment", {}), ("/tuner", UPGRADE)):
        assert ask(under_nni.port, target, headers={**more, **headers})[0] == 403


def test_the_owner_s_browser_gets_the_portal_also_through_a_tunnel(under_nni: LiveRun) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    status, page = ask(under_nni.port, "/", headers={"Host": "localhost:9000", **link})
    assert (status, b"<html" in page) == (200, True)
    own = {"Host": "localhost:9000", "Origin": "http://localhost:9000", "Sec-Fetch-Site": "same-origin"}
    status, text = ask(under_nni.port, f"{API}/experiment", headers=own)
    assert status == 200
    target = f"{API}/experiment?update_type=TRIAL_CONCURRENCY"
    assert ask(under_nni.port, target, "PUT", own, body=text.decode())[0] == 200
    trial = next(trial for trial in under_nni.portal.trials().values() if trial["status"] == "SUCCEEDED")
    status, text = ask(under_nni.port, f"{API}/trial-file/{trial['trialJobId']}/trial.log", headers=own)
    assert (status, b'"quality"' in text) == (200, True)


def test_nnictl_of_the_owner_works(under_nni: LiveRun) -> None:
    def nnictl(*words: str) -> str:
        program = [sys.executable, "-m", "nni.tools.nnictl.nnictl", *words]
        return subprocess.run(
            program, env=under_nni.environment, capture_output=True, text=True, timeout=500, check=True
        ).stdout

    experiment = under_nni.portal.experiment
    assert "success" in nnictl("update", "concurrency", experiment, "--value", "2").lower()
    assert "SUCCEEDED" in nnictl("trial", "ls", experiment)


def test_nothing_that_reaches_the_tuner_is_code(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    code = code_that_makes(marker)
    frames = [
        {"type": "PI", "content": "", "more": code},
        {"type": "IN", "content": json.dumps(code)},
        {"type": "SS", "content": json.dumps(code)},
        {"type": "FD", "content": json.dumps([code])},
        {"type": "TE"},
    ]

    def talk(connection: ServerConnection) -> None:
        for frame in frames:
            connection.send(json.dumps(frame))
        for _ in connection:
            pass

    with serve(talk, "127.0.0.1", 0) as server:
        port = server.socket.getsockname()[1]
        with start_tuner(tmp_path, port, guarded=True) as tuner:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            _, error = tuner.communicate(timeout=500)
        server.shutdown()
    assert tuner.returncode == 0, error
    assert not marker.exists()


def start_tuner(run: Path, port: int, guarded: bool) -> subprocess.Popen[str]:
    (run / "logs").mkdir(exist_ok=True)
    program = "import sys; from primary.nni.tuner import AiperfTuner; AiperfTuner(sys.argv[1]).run()"
    variables = {"NNI_TUNER_COMMAND_CHANNEL": f"ws://127.0.0.1:{port}/tuner", "SDK_PROCESS": "dispatcher"}
    if guarded:
        variables["AIPERF_NNI_GUARDED"] = "1"
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", program, str(run)],
        stdout=pipe,
        stderr=pipe,
        text=True,
        env={**os.environ, **variables},
        cwd=run,
    )


def test_the_tuner_refuses_a_manager_whose_portal_is_open(tmp_path: Path) -> None:
    with start_tuner(tmp_path, 1, guarded=False) as tuner:
        _, error = tuner.communicate(timeout=500)
    assert tuner.returncode != 0
    assert f"aiperf resume {tmp_path}" in error


class _Parameter(BaseHTTPRequestHandler):
    """The other end of a trial's channel; it hands out code."""

    marker: Path

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(b"")

    def do_GET(self) -> None:
        self._answer(json.dumps({"type": "parameter", "parameter": json.dumps(code_that_makes(self.marker))}).encode())

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("plainly", [True, False], ids=["as-ours-do", "as-nni-does"])
def test_the_parameters_of_a_trial_are_not_code(plainly: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nni, "load", nni.load)  # restored afterwards
    monkeypatch.setattr(_Parameter, "marker", tmp_path / "marker", raising=False)
    if plainly:
        read_plainly()
    with HTTPServer(("127.0.0.1", 0), _Parameter) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = TrialCommandChannelV3(f"http://127.0.0.1:{server.server_port}/env/x/y").receive_parameter()
        server.shutdown()
    assert (found == code_that_makes(tmp_path / "marker")) is plainly
    assert (tmp_path / "marker").exists() is not plainly, "the test notices what NNI's own reading does"
