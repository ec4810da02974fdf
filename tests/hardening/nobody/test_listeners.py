"""The listeners that docs/security.md lists, compared with those of real runs."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from aiperf.config.settings import RunConfig, load_config
from aiperf.facts import HybridTraining
from aiperf.network.architecture import Architecture, Node
from aiperf.network.json_files import to_json
from aiperf.network.layers import Dense, Flatten, Input
from aiperf.wire.messages import ArchitectureRequest, Begin, TrainerEpoch
from replica.agent.trial.rank_setup import RankSetup
from replica.agent.trial.requests import hybrid_of
from replica.agent.trial.trainer_process import TrainerProcess
from tests.hardening.nobody.conftest import LiveRun
from tests.support.needs import need_open_mpi
from tests.support.outsiders.listeners import documented, listeners
from tests.support.outsiders.strangers import as_nobody, need_root
from tests.support.outsiders.strangers import ask as ask_page
from tests.support.processes import ask, family, words_of
from tests.support.runs import count_epochs, wait_for
from tests.support.trainings.installed import need_frameworks

SMALL = Architecture((Node("in", Input(32, 32, 3)), Node("flat", Flatten(), ("in",)), Node("fc", Dense(10), ("flat",))))


def seen_until(processes: Callable[[], list[psutil.Process]], wanted: set[str], done: Callable[[], bool]) -> set[str]:
    """The listeners of processes, looked at until all that are wanted were there and `done`."""
    seen = set[str]()

    def look() -> bool:
        seen.update(listeners(processes()))
        return wanted <= seen and done()

    wait_for(look, 400)
    return seen


@pytest.mark.parametrize("kind", ["native", "nni"])
def test_a_run_of_single_ranks(kind: str, request: pytest.FixtureRequest) -> None:
    run: LiveRun = request.getfixturevalue("under_nni" if kind == "nni" else kind)
    epochs = count_epochs(run.output)
    wanted = documented(kind)
    later = lambda: count_epochs(run.output) > epochs + 8  # noqa: E731
    assert seen_until(run.family, wanted, later) == wanted


@pytest.mark.parametrize("starter", ["mpirun", "horovodrun"])
def test_a_training_of_two_ranks(starter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_open_mpi()
    temporary = Path(f"/tmp/aiperf-{os.getpid()}-{starter}")  # Open MPI refuses long names
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    watch = Watch(temporary, documented(starter))
    with watch.watching():
        config = load_config(overrides={"run.dataset": "digits", "replica.rank_starter": starter})
        assert asyncio.run(train(config, tmp_path, watch)) == 1
    temporary.rmdir()
    assert watch.listeners == documented(starter)
    assert watch.folders
    assert {mode & 0o077 for mode in watch.folders.values()} == {0}, "only the owner looks into them"


def test_a_training_of_plain_processes(tmp_path: Path) -> None:
    need_frameworks("torch")
    watch = Watch(tmp_path, documented("processes"))
    config = load_config(overrides={"run.dataset": "digits", "training.framework": "torch"})
    with watch.watching():
        assert asyncio.run(train(config, tmp_path, watch)) == 1
    assert watch.listeners == documented("processes")


def test_a_training_in_groups(tmp_path: Path) -> None:
    need_frameworks("torch")
    watch = Watch(tmp_path, documented("groups"))
    chosen = {"run.dataset": "digits", "training.framework": "torch", "training.groups": 2}
    config = load_config(overrides=chosen)
    with watch.watching():
        assert asyncio.run(train(config, tmp_path, watch, hybrid=hybrid_of(config, "sgd", 0.9))) == 1
    assert watch.listeners == documented("groups")


class Watch:
    """Listeners of this process and of a training, and the modes of what they make in a folder.

    Under Gloo (`horovodrun`) ranks listen for each other only until they have met, which may be
    over between two looks. Rank 1 is therefore held back until all that are wanted were seen.
    """

    def __init__(self, temporary: Path, wanted: set[str]) -> None:
        self._temporary, self._wanted = temporary, wanted
        # Plugins of pytest listen, too, in a process without others that run tests.
        self._before = listeners([psutil.Process()])
        self._held: psutil.Process | None = None
        self._over = threading.Event()
        self.training: int | None = None
        """The head of its processes; other children of this process are other runs."""
        self.listeners = set[str]()
        self.folders = dict[str, int]()

    @contextmanager
    def watching(self) -> Iterator[None]:
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            members = family(self.training) if self.training is not None else []
            self._hold_back(members)
            self.listeners |= (listeners([psutil.Process()]) - self._before) | listeners(members)
            if self._held is not None and self._wanted <= self.listeners:
                ask(self._held.resume, None)
            for path in self._temporary.iterdir():
                if path.exists():
                    self.folders[path.name] = path.stat().st_mode

    def _hold_back(self, members: list[psutil.Process]) -> None:
        if self._held is not None:
            return
        for process in members:
            inherited = ask(process.environ, dict[str, str]())
            if inherited.get("HOROVOD_RANK") == "1" and "-c" not in words_of(process)[:2]:
                self._held = process
                ask(process.suspend, None)
                return


async def train(config: RunConfig, folder: Path, watch: Watch, hybrid: HybridTraining | None = None) -> int:
    """Train for an epoch; the number of epochs that were reported."""
    architecture = folder / "architecture.json"
    architecture.write_text(to_json(SMALL))
    request = ArchitectureRequest(
        architecture_path=str(architecture),
        dataset="digits",
        batch_size=32,
        epochs=1,
        max_epochs=1,
        patience=9,
        seed=3,
        learning_rate=0.02,
        momentum=0.9,
        label_smoothing=0.1,
        precision="float32",
        compile="auto",
        progress_interval_s=0.02,
        hybrid=hybrid,
    )
    trainer = await TrainerProcess.start(RankSetup(config, 2), request, folder / "ranks.log")
    watch.training = trainer.pid
    try:
        await trainer.until_ready(120)
        await trainer.begin(Begin(trial=1))
        return len([message async for message in trainer.messages(120) if isinstance(message, TrainerEpoch)])
    finally:
        await trainer.end()


@pytest.mark.parametrize("words", [(), ("--socket", "S")], ids=["port", "socket"])
def test_a_dashboard(words: tuple[str, ...], native: LiveRun, tmp_path: Path) -> None:
    program = [sys.executable, "-P", "-m", "aiperf", "dashboard", str(native.output), *words]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, cwd=tmp_path, umask=0) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline()
            assert listeners(family(process.pid)) == documented("dashboard --socket" if words else "dashboard")
            need_root()
            with as_nobody():
                if words:
                    assert not os.access(tmp_path / "S", os.R_OK | os.W_OK, effective_ids=True)
                else:
                    assert ask_page(int(address.split(":")[2].split("/")[0]), "/")[0] == 403
        finally:
            process.terminate()
    if words:
        assert (tmp_path / "S").exists() is False
