"""Audits of real trainings: honest ones pass, those of patched trainers are found.

One trial of one epoch each, trained by the rank program of a copy of the source with one patch,
into the records of a hand-made run.
"""

import asyncio
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from aiperf.records.bodies import EpochCompleted
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.run_directory.paths import RunPaths
from aiperf.wire.messages import Begin
from analysis.reading.run_data import read_run
from benchmarks.audit.power import PATCHES, patched_tree
from referee.audit.recorded import Recorded
from referee.audit.repetitions import ranks_here, repeat
from search_space.resnet import resnet
from tests.support.hand_made import HandMadeRun, aiperf
from tests.support.images import CLASSES, SIDE, make_shards

pytestmark = pytest.mark.timeout(900)

STEPS = 4
"""That an audit repeats, of six."""

BATCH = 8

QUICK = {"training.max_epochs": 1, "training.batch_size": BATCH}


@dataclass(frozen=True)
class Training:
    """What the only epoch of a run has left behind: its facts, and the files of its run."""

    facts: dict[str, Any]
    paths: RunPaths
    images: Path


def begun_run(root: Path, images: Path, threads: int = 2) -> HandMadeRun:
    """A run whose only trial has begun: the same one wherever it is made."""
    settings = {**QUICK, "run.dataset": "images", "run.data_dir": str(images), "replica.cpu_threads": threads}
    run = HandMadeRun(root / "run", settings)
    run.architecture = resnet(50, SIDE, CLASSES)
    ArchitectureStore(run.paths).save(run.architecture)
    run.hyperparameters = {"batch_size": BATCH, "learning_rate": 0.1, "momentum": 0.9, "label_smoothing": 0.1}
    return run.release(3600).at(1).start_trial(1, **run.planned()).built(1)


def trained(root: Path, images: Path, patch: str) -> Training:
    """Train the only epoch with a patched trainer."""
    run = begun_run(root / "training", images)
    recorded = Recorded(run.paths, read_run(run.paths))
    tree = patched_tree(PATCHES[patch], root / "tree")
    setup = replace(ranks_here(run.config, 1), environment={"PYTHONPATH": str(tree)})
    weights = str(run.paths.weights(run.architecture.hash, 1))
    request = structs.replace(recorded.request(recorded.ledger(1), None), epochs=1)
    scratch = root / "scratch"
    scratch.mkdir()
    outcome = asyncio.run(repeat(setup, request, Begin(trial=1, save_weights_path=weights), scratch))
    (facts,) = outcome.trained
    run.paths.evidence(1).parent.mkdir()
    shutil.move(scratch / run.paths.evidence(1).name, run.paths.evidence(1))
    return Training(structs.asdict(facts), run.paths, images)


def run_of(training: Training, root: Path, more_correct: int = 0, threads: int = 2) -> HandMadeRun:
    """A run of one trial, whose only epoch was this training; by its configuration of `threads`."""
    run = begun_run(root, training.images, threads)
    weights = run.paths.weights(run.architecture.hash, 1)
    for file, source in (
        (run.paths.evidence(1), training.paths.evidence(1)),
        (weights, training.paths.weights(run.architecture.hash, 1)),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, file)
    facts = {**training.facts, "correct": training.facts["correct"] + more_correct}
    run.at(1000).completed(0, EpochCompleted(trial=1, **facts)).end_trial(1).end(3600)
    return run


def audited(run: HandMadeRun, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    words = ("--nonce", "word", "--draws", "1", "--steps", STEPS, "--format", "json")
    done = aiperf("audit", run.paths.root, *words, timeout_s=800, environment=environment)
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if found["verdict"] == "passed" else 1)
    return found


def failed(found: dict[str, Any]) -> set[str]:
    return {finding["check"] for finding in found["draws"] if not finding["passed"]}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images") / "data"
    make_shards(folder)
    return folder


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory, images: Path) -> Training:
    return trained(tmp_path_factory.mktemp("honest"), images, "none")


def test_an_honest_training_passes_and_nothing_is_written(honest: Training, tmp_path: Path) -> None:
    run = run_of(honest, tmp_path)
    before = {file: file.stat().st_mtime_ns for file in run.paths.root.rglob("*")}
    found = audited(run)
    assert (found["verdict"], found["problems"]) == ("passed", []), found
    assert {finding["check"] for finding in found["draws"]} == {"replay", "rows", "steps", "weights", "memory"}
    assert {file: file.stat().st_mtime_ns for file in run.paths.root.rglob("*")} == before


def test_another_processor_for_the_audit_accuses_nobody(honest: Training, tmp_path: Path) -> None:
    """One without AVX-512, by the variable of oneDNN, and with another number of threads."""
    found = audited(run_of(honest, tmp_path, threads=1), {"ONEDNN_MAX_CPU_ISA": "AVX2"})
    assert (found["verdict"], found["problems"]) == ("passed", []), found


@pytest.mark.parametrize("patch", ["no backward pass", "half of the images"])
def test_a_patched_trainer_is_found_by_its_steps(tmp_path: Path, images: Path, patch: str) -> None:
    assert "steps" in failed(audited(run_of(trained(tmp_path, images, patch), tmp_path)))


def test_invented_accuracies_are_found_by_the_kept_weights(honest: Training, tmp_path: Path) -> None:
    assert failed(audited(run_of(honest, tmp_path, more_correct=3))) == {"weights"}
