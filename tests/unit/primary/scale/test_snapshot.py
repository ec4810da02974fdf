"""The snapshot of a large run: what the primary writes, and when its readers use it."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from aiperf.clock import SystemClock
from aiperf.config.datasets import DIGITS
from aiperf.config.settings import load_config
from aiperf.rules.score import regulated
from aiperf.run_directory.changes import look_at
from aiperf.run_directory.claim import Claim
from aiperf.run_directory.manifest import write_manifest
from aiperf.run_directory.paths import RunPaths
from aiperf.run_directory.snapshot import INTERVAL_S, STALE_MS, read_snapshot
from aiperf.wire.messages import Progress
from analysis.results.glance import RunStatus, status_at_a_glance
from dashboard.rendering import Worker
from dashboard.watch import View
from dashboard.work import Task
from dashboard.worker import answers
from primary.display.snapshot import SnapshotDisplay
from primary.display.state import LiveReplica, LiveRun
from tests.support.hand_made import T0_MS, ManualClock, aiperf

CONFIG = load_config(overrides={"run.name": "large", "run.dataset": "digits", "training.trainer": "simulated"})


def in_progress(replicas: int = 2) -> LiveRun:
    """Replica 0 has one trial behind it and trains trial 7; the others have not begun."""
    view = LiveRun(100.0, [LiveReplica(number) for number in range(replicas)], elapsed_s=40.0)
    first = view.replicas[0]
    first.state, first.round, first.trials = "working", 3, 1
    for trial, accuracy in ((3, 0.75), (7, 0.5)):
        first.take(Progress(trial=trial, phase="train", epoch=2, epochs=9, accuracy=accuracy, operations=10**12))
    return view


def test_the_status_of_a_large_run_comes_from_its_snapshot(tmp_path: Path) -> None:
    paths, clock = RunPaths(tmp_path), ManualClock()
    write_manifest(paths, CONFIG)
    display = SnapshotDisplay(paths, CONFIG, clock)
    display.refresh(in_progress())
    paths.system.write_text('{"1": {"host": "n1"}}')
    assert status_at_a_glance(paths, T0_MS) is None, "no primary lives"
    with Claim.acquire(paths.claims, clock):
        status = status_at_a_glance(paths, T0_MS)
        assert status is not None
        assert (status.source, status.name, status.state, status.elapsed_s, status.left_s) == (
            "snapshot",
            "large",
            "running",
            40.0,
            60.0,
        )
        assert (status.trials, status.error, status.score_ops) == (7, 0.25, 2 * 10**12 / 40.0)
        assert status.primary == f"process {os.getpid()} on {socket.gethostname()}"
        assert status.simulated
        starting, working = status.replicas
        assert (starting.node, working.node) == ("n1", None), "the one that has done least comes first"
        assert (working.state, working.phase, working.trial, working.round, working.epochs) == (
            "working",
            "train",
            7,
            3,
            2,
        )
        assert (working.accuracy, working.operations) == (0.5, 2 * 10**12)
        assert (starting.state, starting.trial, starting.operations) == ("starting", None, 0)
        assert status_at_a_glance(paths, T0_MS + STALE_MS) is None, "its primary writes no more"
        other = paths.snapshot.read_text().replace(f'"pid":{os.getpid()}', '"pid":1')
        paths.snapshot.write_text(other)
        assert status_at_a_glance(paths, T0_MS) is None, "an earlier primary's"
        display.close()
        assert not paths.snapshot.exists()


def test_the_error_of_a_perfect_accuracy_is_that_of_the_rules(tmp_path: Path) -> None:
    paths, clock, view = RunPaths(tmp_path), ManualClock(), in_progress()
    write_manifest(paths, CONFIG)
    view.replicas[0].take(Progress(trial=8, phase="train", epoch=2, epochs=9, accuracy=1.0, operations=10**12))
    SnapshotDisplay(paths, CONFIG, clock).refresh(view)
    with Claim.acquire(paths.claims, clock):
        status = status_at_a_glance(paths, T0_MS)
    assert status is not None
    assert status.error == 1 / (2 * DIGITS.validation_images)
    assert status.regulated_score_ops == regulated(status.score_ops or 0.0, status.error)


def test_the_command_imports_nothing_that_reads_records() -> None:
    script = "import sys, analysis.verbs.status; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "analysis.results.glance" in loaded
    assert loaded & {"numpy", "aiperf.config.settings", "analysis.reading.run_data", "analysis.report.model"} == set()


def test_snapshots_are_written_at_a_bounded_rate(tmp_path: Path) -> None:
    paths, clock, view = RunPaths(tmp_path), ManualClock(), in_progress()
    display = SnapshotDisplay(paths, CONFIG, clock)
    seen = set()
    for _ in range(3):
        for _ in range(10):
            display.refresh(view)
            found = read_snapshot(paths, clock.utc_ms())
            assert found is not None
            seen.add(found.written_ms)
        clock.pause(INTERVAL_S / 2)
    assert len(seen) == 2


@pytest.mark.parametrize("content", [b"", b"{", b'{"version":2}', b"[" * 1000])
def test_a_damaged_snapshot_is_as_none(tmp_path: Path, content: bytes) -> None:
    paths = RunPaths(tmp_path)
    assert read_snapshot(paths, T0_MS) is None
    paths.snapshot.write_bytes(content)
    assert read_snapshot(paths, T0_MS) is None


def test_a_file_system_that_refuses_costs_a_snapshot(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    SnapshotDisplay(RunPaths(tmp_path / "file" / "run"), CONFIG, ManualClock()).refresh(in_progress())


def test_command_and_dashboard_read_the_snapshot_in_place_of_the_records(tmp_path: Path) -> None:
    paths, clock = RunPaths(tmp_path), SystemClock()
    paths.create()
    write_manifest(paths, CONFIG)
    paths.history_file("replica-0000-1").write_bytes(b"not a record\n")
    SnapshotDisplay(paths, CONFIG, clock).refresh(in_progress())
    with Claim.acquire(paths.claims, clock):
        shown = RunStatus.model_validate_json(aiperf("status", tmp_path, "--format", "json").stdout)
        assert (shown.source, shown.trials) == ("snapshot", 7)
        (answer,) = answers(Task(run=tmp_path))
        assert answer.status is not None
        assert answer.status.source == "snapshot"
        view = View(paths, Worker(), clock)
        seen, of_records = view._look(clock.utc_ms()), view._look(clock.utc_ms() + STALE_MS)
        assert of_records == look_at(paths)
        with paths.history_file("replica-0000-1").open("ab") as stream:
            stream.write(b"nor this\n")
        assert view._look(clock.utc_ms()) == seen, "of the records nothing is looked at"
        assert view._look(clock.utc_ms() + STALE_MS) != of_records
        paths.snapshot.write_bytes(paths.snapshot.read_bytes() + b"\n")
        assert view._look(clock.utc_ms()) != seen
