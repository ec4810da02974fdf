"""Runs of the scientific suite: real data files, real training, kills, data that teach nothing."""

import json
import re
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import psutil
import pytest

from aiperf.records.reading import read_ledger
from aiperf.run_directory.paths import RunPaths
from tests.faults.books import recorded, reported, wrong_ends
from tests.support.hand_made import aiperf
from tests.support.processes import family, lives, words_of
from tests.support.runs import Watched, agents, count_epochs, nothing_is_left, wait_for, wait_for_epochs
from tests.support.science.mlperf import complaints

IMAGES, VALIDATION, TEST = 1500, 400, 90
SUITE = ("--suite", "science", "--rehearsal", "--workload", "hepcnn")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small data set of collisions."""
    folder = tmp_path_factory.mktemp("science")
    words = ("--images", IMAGES, "--validation", VALIDATION, "--test", TEST)
    made = aiperf("dataset", "synthesize", "hep", folder / "hep-32", *words)
    assert made.returncode == 0, made.stderr
    return folder


EPOCHS = 4


def ranks(agent: psutil.Process) -> list[psutil.Process]:
    """The ranks of an agent."""
    return [process for process in family(agent)[1:] if "replica.trainer" in words_of(process) and lives(process)]


@pytest.fixture(scope="module")
def killed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run whose agent, rank and primary were killed, resumed to its end, and its last line."""
    output = tmp_path_factory.mktemp("killed") / "run"
    words = (*SUITE, "--instances", 2, "--replicas", 2, "--duration", "20m", "--set", f"science.data_dir={data}",
             "--set", f"science.max_epochs={EPOCHS}", "--set", "science.stop=deadline",
             "--set", "training.checkpoint_interval=0.1", "--set", "replica.retry_delay=0.1")  # fmt: skip
    command = [sys.executable, "-m", "aiperf", "run", "--output", str(output), *map(str, words)]
    with Watched(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for_epochs(output, 1)
        # Each model is interrupted twice, and could be once more.
        victims = [*agents(output, 0), *ranks(agents(output, 1)[0])]
        assert len(victims) == 2
        for victim in victims:
            victim.kill()
        wait_for_epochs(output, count_epochs(output) + 1)
        process.kill()
        process.communicate(timeout=500)
    nothing_is_left(output, 60)
    resumed = aiperf("resume", output, timeout_s=500)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    return output, resumed.stdout.splitlines()[-1]


def test_models_are_trained_to_their_ends_whatever_is_killed(killed: tuple[Path, str]) -> None:
    output, last = killed
    assert last.startswith("AIPerf-science: workloads=1 reached=")
    ledger = read_ledger(RunPaths(output))
    assert ledger.run_ended is not None
    assert ledger.run_ended.body.reason == "completed"
    kept = recorded(output)
    assert max(kept.values()) == 1
    assert reported(output) <= set(kept), "no epoch that the primary has heard of is lost"
    assert wrong_ends(output) == []
    nothing_is_left(output, 60)
    for instance in range(2):
        trials = (trial for _, trial in sorted(ledger.trials.items()))
        own = [trial for trial in trials if trial.issued is not None and trial.issued.instance == instance]
        ended = [trial for trial in own if trial.ended is not None and trial.ended.body.reason != "stopped"]
        assert [trial.trial for trial in ended] == [own[-1].trial], "one end, of the last trial"
        assert [trial.issued.resumes for trial in own if trial.issued is not None] == [
            None,
            *(trial.trial for trial in own[:-1]),
        ]
        numbers = sorted(number for trial in own for number in trial.epochs)
        assert set(numbers) == set(range(1, EPOCHS + 1))
        assert len(numbers) < EPOCHS + len(own), "at most the epoch without a checkpoint is repeated"
    again = aiperf("resume", output)
    assert (again.returncode, again.stdout) == (2, "")
    assert "the run has completed its work; there is nothing to resume" in again.stderr
    lost = [trial for trial in ledger.trials.values() if trial.begun is not None and trial.ended is None]
    assert len(lost) >= 2


def test_every_epoch_has_all_images_and_the_last_one_training_images_too(killed: tuple[Path, str]) -> None:
    for trial in read_ledger(RunPaths(killed[0])).trials.values():
        for epoch in trial.epochs.values():
            body, ends = epoch.body, epoch.body.epoch == EPOCHS
            assert (body.images_trained, body.images_evaluated) == (IMAGES, VALIDATION * (2 if ends else 1))
            assert body.measures is not None
            assert body.quality == body.measures["accuracy"]
            assert (body.training_measures is not None) == ends
            assert set(body.training_measures or body.measures) == set(body.measures)
            assert body.test_images == (TEST if ends else None), "the test split, once, and no work that counts"
            assert set(body.test_measures or {}) == (set(body.measures) if ends else set())
    (part,) = json.loads((killed[0] / "report" / "report.json").read_text())["workloads"]
    assert part["test_images"] == TEST
    assert all(0 <= model["test_quality"] <= 1 for model in part["models"])


@pytest.fixture(scope="module")
def taught_nothing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run on events with shuffled labels, and on a few cubes."""
    folder = tmp_path_factory.mktemp("shuffled")
    made = [
        aiperf("dataset", "synthesize", "hep", folder / "hep-32", "--images", IMAGES, "--validation", VALIDATION),
        aiperf("dataset", "synthesize", "cos", folder / "cos-16", "--images", 48, "--validation", 16),
    ]
    assert [each.returncode for each in made] == [0, 0], [each.stderr for each in made]
    rng = np.random.default_rng(1)
    for file in (folder / "hep-32").glob("*.h5"):
        with h5py.File(file, "r+") as opened:
            labels = opened["all_events/y"]
            labels[:] = rng.permutation(labels[:])
    (folder / "hep-32" / "dataset.json").unlink()
    assert aiperf("dataset", "check", folder / "hep-32", "--write-manifest").returncode == 0
    output = folder / "run"
    words = ("--suite", "science", "--rehearsal", "--workload", "hepcnn,cosmoflow", "--duration", "20m")
    settings = ("--set", f"science.data_dir={folder}", "--set", "science.max_epochs=3")
    ended = aiperf("run", *words, *settings, "--output", output, timeout_s=500)
    assert ended.returncode == 0, ended.stderr
    return output


def test_a_network_learns_nothing_from_shuffled_labels(taught_nothing: Path) -> None:
    trial, _ = (trial for _, trial in sorted(read_ledger(RunPaths(taught_nothing)).trials.items()))
    assert len(trial.epochs) == 3, "the target was not reached"
    assert all((epoch.body.quality or 1.0) < 0.65 for epoch in trial.epochs.values())


def test_the_checker_of_mlperf_hpc_asks_a_real_training_for_its_quality_alone(
    taught_nothing: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = taught_nothing / "report" / "mllog"
    (complaint,) = complaints(logs / "cosmoflow" / "result_0.txt", caplog)
    assert complaint.startswith("Failed checks for eval_error")
    keys = [
        set(re.findall('"key": "([a-z_]+)"', (logs / name / "result_0.txt").read_text()))
        for name in ("cosmoflow", "hepcnn")
    ]
    assert keys[1] <= keys[0], "other workloads log nothing that it does not"


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
