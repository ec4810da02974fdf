"""A whole run driven in virtual time, which only works if time is passed in everywhere."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from aiperf.config.settings import load_config
from aiperf.history.files import HistoryWriter
from aiperf.run_directory.claim import Claim
from aiperf.run_directory.manifest import write_manifest
from aiperf.run_directory.paths import RunPaths
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.results.verify import verify
from primary.context import RunContext
from primary.dispatcher import Dispatcher
from primary.display.terminal import LineDisplay
from primary.managers.contract import EndReason
from primary.native import NativeManager
from primary.work import open_work
from testing.virtual_time import InProcessLauncher, VirtualClock, VirtualLoop, run_virtually

REPLICAS = 4
HOURS = 2


def run_for_hours(root: Path, shown: io.StringIO) -> EndReason:
    config = load_config(overrides={
        "run.dataset": "digits", "run.replicas": REPLICAS, "run.duration": f"{HOURS}h", "search.strategy": "random",
        "training.trainer": "simulated", "simulated.epoch_seconds": 60.0,
    })  # fmt: skip
    paths = RunPaths(root)
    paths.create()
    write_manifest(paths, config)

    async def conduct(loop: VirtualLoop) -> EndReason:
        clock = VirtualClock(loop)
        with Claim(paths.claim, clock.utc_ms()) as claim, HistoryWriter(paths, "primary", clock) as writer:
            context = RunContext(
                config=config, paths=paths, launcher=InProcessLauncher(config, paths, loop), writer=writer,
                display=LineDisplay(shown, clock), work=open_work(config), claim=claim, manager=NativeManager(),
            )  # fmt: skip
            return await Dispatcher(context).run()

    return run_virtually(conduct)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunPaths:
    root = tmp_path_factory.mktemp("virtual") / "run"
    assert run_for_hours(root, io.StringIO()) == "deadline"
    return RunPaths(root)


def test_the_run_is_a_true_run_directory(finished: RunPaths) -> None:
    assert verify(finished) == []
    report = build_report(read_run(finished))
    assert report.duration_s == HOURS * 3600
    assert {replica.replica for replica in report.replica_details} == set(range(REPLICAS))
    assert all(replica.operations > 0 for replica in report.replica_details)


def test_every_replica_trains_for_nearly_the_whole_time(finished: RunPaths) -> None:
    report = build_report(read_run(finished))
    # An epoch takes a minute and a warm-up half a minute, next to the training before it.
    epochs = sum(trial.epochs for trial in report.trials)
    assert REPLICAS * HOURS * 60 * 0.9 < epochs <= REPLICAS * HOURS * 60
    assert all((replica.busy_fraction or 0) > 0.9 for replica in report.replica_details)


def test_the_same_seed_gives_the_same_run(finished: RunPaths, tmp_path: Path) -> None:
    run_for_hours(tmp_path / "run", io.StringIO())
    once, again = (build_report(read_run(paths)) for paths in (finished, RunPaths(tmp_path / "run")))
    assert once.score_ops == again.score_ops
    assert [trial.architecture for trial in once.trials] == [trial.architecture for trial in again.trials]
