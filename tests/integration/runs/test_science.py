"""Runs of the scientific suite: real data files, real training, kills, data that teach nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from aiperf.history.reading import read_ledger
from aiperf.run_directory.paths import RunPaths
from testing.hand_made import aiperf
from testing.runs import agents, nothing_is_left, wait_for, wait_for_epochs

IMAGES, VALIDATION = 1500, 400
SUITE = ("--suite", "science", "--rehearsal", "--workload", "hepcnn")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small data set of collisions."""
    folder = tmp_path_factory.mktemp("science")
    made = aiperf("dataset", "synthesize", "hep", folder / "hep-32", "--images", IMAGES, "--validation", VALIDATION)
    assert made.returncode == 0, made.stderr
    return folder


def test_models_are_trained_to_the_end_of_the_work_and_a_killed_one_is_resumed(data: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    words = (*SUITE, "--instances", 2, "--replicas", 2, "--duration", "20m", "--set", f"science.data_dir={data}",
             "--set", "science.max_epochs=3", "--set", "training.checkpoint_interval=0.1",
             "--set", "replica.retry_delay=0.1")  # fmt: skip
    command = [sys.executable, "-m", "aiperf", "run", "--output", str(output), *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for_epochs(output, 1)
        agents(output, 0)[0].send_signal(signal.SIGKILL)
        out, err = process.communicate(timeout=500)
    assert process.returncode == 0, out + err
    ledger = read_ledger(RunPaths(output))
    assert ledger.run_ended is not None
    assert ledger.run_ended.body.reason == "completed"
    ended = {
        (trial.workload.workload, trial.workload.instance): trial
        for trial in ledger.trials.values()
        if trial.workload is not None and trial.ended is not None and trial.ended.body.reason != "stopped"
    }
    assert sorted(ended) == [("hepcnn", 0), ("hepcnn", 1)]
    for trial in ledger.trials.values():
        for epoch in trial.epochs.values():
            body = epoch.body
            assert (body.images_trained, body.images_validated) == (IMAGES, VALIDATION)
            assert body.measures is not None
            assert body.quality == body.measures["accuracy"]
    lost = [trial for trial in ledger.trials.values() if trial.begun is not None and trial.ended is None]
    assert [trial.issued.workload for trial in lost if trial.issued is not None] == ["hepcnn"], "one was killed"
    resumed = [trial for trial in ended.values() if trial.workload is not None and trial.workload.resumes is not None]
    assert [trial.workload.resumes for trial in resumed if trial.workload is not None] == [lost[0].trial]
    numbers = sorted([*lost[0].epochs, *resumed[0].epochs])
    assert numbers in ([1, 2, 3], [1, 1, 2, 3], [1, 2, 2, 3]), "at most the epoch without a checkpoint is repeated"
    nothing_is_left(output, 60)


def test_a_network_learns_nothing_from_shuffled_labels(data: Path, tmp_path: Path) -> None:
    made = aiperf("dataset", "synthesize", "hep", tmp_path / "hep-32", "--images", IMAGES, "--validation", VALIDATION)
    assert made.returncode == 0, made.stderr
    rng = np.random.default_rng(1)
    for file in (tmp_path / "hep-32").glob("*.h5"):
        with h5py.File(file, "r+") as opened:
            labels = opened["all_events/y"]
            labels[:] = rng.permutation(labels[:])
    (tmp_path / "hep-32" / "dataset.json").unlink()
    assert aiperf("dataset", "check", tmp_path / "hep-32", "--write-manifest").returncode == 0
    output = tmp_path / "run"
    aiperf("run", *SUITE, "--duration", "20m", "--set", f"science.data_dir={tmp_path}", "--set", "science.max_epochs=3",
           "--output", output, timeout_s=500)  # fmt: skip
    (trial,) = read_ledger(RunPaths(output)).trials.values()
    assert len(trial.epochs) == 3, "the target was not reached"
    assert all((epoch.body.quality or 1.0) < 0.65 for epoch in trial.epochs.values())


def test_a_run_with_damaged_data_names_all_problems_and_does_not_begin(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "hep-32"
    folder.mkdir()
    for file in (data / "hep-32").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    files = sorted(folder.glob("*.h5"))
    files[0].write_bytes(files[0].read_bytes()[:5000])
    with h5py.File(files[1], "r+") as opened:
        del opened["all_events/y"]
    output = tmp_path / "run"
    refused = aiperf("run", *SUITE, "--set", f"science.data_dir={tmp_path}", "--output", output)
    assert refused.returncode == 2
    assert files[0].name in refused.stderr
    assert files[1].name in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not output.exists()
    wait_for(lambda: not agents(output))
