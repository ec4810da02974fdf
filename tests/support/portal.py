"""A client of NNI's portal: of its manager's interface on this machine."""

import contextlib
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from tests.support.processes import listening
from tests.support.runs import own_processes

NOT_THERE = (URLError, ConnectionError, KeyError, FileNotFoundError, ValueError)
"""Errors of a request while the portal starts or ends."""


def loopback_addresses() -> set[str]:
    """The addresses by which this machine is reached from itself: some have no IPv6."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return {"127.0.0.1", "::1"}
    return {"127.0.0.1"}


class Portal:
    """The portal of the experiment of one run."""

    def __init__(self, output: Path, port: int) -> None:
        self.output = output
        self.port = port

    def ask(self, path: str, method: str = "GET", body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = Request(f"http://127.0.0.1:{self.port}/api/v1/nni{path}", data, headers, method=method)
        with urlopen(request, timeout=20) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    @property
    def status(self) -> str | None:
        try:
            return str(self.ask("/check-status")["status"])
        except (*NOT_THERE, TypeError):
            return None

    @property
    def experiment(self) -> str:
        return str(json.loads((self.output / "nni.json").read_text())["experiment"])

    def trials(self) -> dict[int, dict[str, Any]]:
        """NNI's trials by the number of the trial that they follow, with their parameters."""
        jobs = [{**job, **json.loads(job["hyperParameters"][0])} for job in self.ask("/trial-jobs")]
        return {job["parameters"]["trial"]: job for job in jobs}

    def curve(self, trial: dict[str, Any]) -> list[float]:
        """The intermediate results of a trial, in order."""
        metrics = self.ask(f"/metric-data/{trial['trialJobId']}")
        steps = sorted((m for m in metrics if m["type"] == "PERIODICAL"), key=lambda m: int(m["sequence"]))
        return [json.loads(json.loads(m["data"]))["default"] for m in steps]

    def listeners(self) -> set[str]:
        """The addresses on which any process of the run listens, except SLURM's own."""
        return {address for process in own_processes(self.output) for address in listening(process)}

    def wait_for(self, what: Callable[[], object], timeout_s: float = 200) -> None:
        """Wait until something is true of the experiment."""
        late_s = time.monotonic() + timeout_s
        while time.monotonic() < late_s:
            try:
                if what():
                    return
            except NOT_THERE:
                pass
            time.sleep(0.3)
        raise AssertionError(f"it did not become true; NNI's status: {self.status}")


def final_of(trial: dict[str, Any], metric: str = "default") -> float:
    """The final result of a trial, or another of its metrics."""
    return float(json.loads(json.loads(trial["finalMetricData"][0]["data"]))[metric])
