"""Two runs in progress that were started with the worst umask, one of them under NNI."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.support.hand_made import SIMULATED, free_port
from tests.support.outsiders.strangers import open_folder
from tests.support.portal import Portal
from tests.support.processes import family
from tests.support.runs import AT_RANDOM, nothing_is_left, wait_for_epochs


@dataclass(frozen=True)
class LiveRun:
    """A run in progress, in a folder that everybody may enter."""

    folder: Path
    process: subprocess.Popen[bytes]
    port: int

    @property
    def output(self) -> Path:
        return self.folder / "run"

    @property
    def temporary(self) -> Path:
        """All temporary files of the run, and only those."""
        return self.folder / "tmp"

    @property
    def portal(self) -> Portal:
        return Portal(self.output, self.port)

    @property
    def environment(self) -> dict[str, str]:
        return environment_in(self.folder)

    def family(self) -> list[psutil.Process]:
        return family(self.process.pid)


def environment_in(folder: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(folder), "TMPDIR": str(folder / "tmp")}


@contextmanager
def live_run(*words: str) -> Iterator[LiveRun]:
    """Its trials take some seconds: starting one after the other would take a core for minutes."""
    port = free_port()
    with open_folder() as folder:
        (folder / "tmp").mkdir()
        command = [
            sys.executable, "-P", "-m", "aiperf", "run", *SIMULATED, "--replicas", "2", "--duration", "20m",
            "--output", str(folder / "run"), "--set", f"nni.port={port}", "--set", "simulated.epoch_seconds=5",
            "--set", "search.hpo=none", "--set", "training.max_epochs=4", "--no-page", *AT_RANDOM, *words,
        ]  # fmt: skip
        log = (folder / "output").open("wb")
        with log, subprocess.Popen(command, stdout=log, stderr=log, env=environment_in(folder), umask=0) as process:
            try:
                wait_for_epochs(folder / "run")
                yield LiveRun(folder, process, port)
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(timeout=500)
        nothing_is_left(folder / "run", 60)


@pytest.fixture(scope="package")
def native() -> Iterator[LiveRun]:
    with live_run() as run:
        yield run


@pytest.fixture(scope="package")
def under_nni() -> Iterator[LiveRun]:
    with live_run("--manager", "nni") as run:
        run.portal.wait_for(lambda: "SUCCEEDED" in {trial["status"] for trial in run.portal.trials().values()})
        yield run
