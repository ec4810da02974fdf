"""A run with real training, and its score recomputed by hand from the raw lines of its records."""

import json
import subprocess
import sys
from datetime import datetime
from math import log
from pathlib import Path

import pytest

from aiperf.network.json_files import read_architecture
from replica.measure.counting.keras_operations import count_model
from replica.trainer.model.builder import build_model
from tests.support.folders import GOLDEN
from tests.support.images import silent
from tests.support.processes import ask
from tests.support.runs import Watched, agents, raw_records, report, wait_for
from tests.support.trainings.installed import need_frameworks
from workloads.datasets.synthesize import Recipe, synthesize

NETWORKS = json.loads((GOLDEN / "operations.json").read_text())["networks"]

SECONDS = (90, 300)
"""Durations of the run: the second if a busy machine did not start a third trial in the first."""

TRAIN, VALIDATION, SIDE, CLASSES = 320, 40, 32, 10
BATCH = 32

REPORT_S = 0.1
"""Between reports: less than the steps of an epoch take on the fastest processor."""


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_frameworks("torch")  # its ranks start sooner than others: a run of three trials is short
    folder = tmp_path_factory.mktemp("real")
    images = folder / "images"
    recipe = Recipe({"train": TRAIN, "validation": VALIDATION}, {"train": 2, "validation": 1}, CLASSES, 40, 56, SIDE, 1)
    synthesize(recipe, images, silent, workers=1)
    for seconds in SECONDS:
        if started_a_third_trial(result := folder / str(seconds), images, seconds):
            break
    return result


def started_a_third_trial(result: Path, images: Path, seconds: int) -> bool:
    """Run to the deadline; True if a third trial had reported images before.

    That trial has something to count when it is frozen: more of it shows nothing else, and slows
    other tests.
    """
    words = [
        "run", "--dataset", "images", "--data-dir", images, "--replicas", 1, "--duration", f"{seconds}s",
        "--output", result, "--no-page", "--framework", "torch",
        "--set", "training.max_epochs=1", "--set", f"training.batch_size={BATCH}",
        "--set", "search.initial_weights=inherit", "--set", "replica.cpu_threads=1",
        "--set", f"replica.progress_interval={REPORT_S}",
    ]  # fmt: skip
    with Watched(
        [sys.executable, "-m", "aiperf", *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for(lambda: process.poll() is not None or reports_of_a_third_trial(result), seconds + 1000)
        for rank in [child for agent in agents(result) for child in agent.children(recursive=True)]:
            ask(rank.suspend, None)
        _, stderr = process.communicate(timeout=seconds + 1000)
    assert process.returncode == 0, stderr
    return reports_of_a_third_trial(result)


def reports_of_a_third_trial(output: Path) -> bool:
    """True if two trials are over, and another one has reported images."""
    try:
        records = raw_records(output)
    except (OSError, ValueError):  # there is no directory yet, or half a line
        return False
    over = {record["trial"] for record in records if record["type"] == "epoch"}
    return len(over) >= 2 and any(r["type"] == "progress" and r["trial"] not in over for r in records)


def milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def test_score_and_regulated_score_recomputed_by_hand_are_exact(output: Path) -> None:
    records = raw_records(output)
    found = report(output)
    released = next(record for record in records if record["type"] == "run_released")
    start_ms = milliseconds(released["time"])
    seconds = int(output.name)
    end_ms = start_ms + 1000 * seconds
    golden = NETWORKS["resnet50_v1_32_10"]
    costs = {1: (golden["total"], golden["fp"])}
    for trial in found["trials"][1:]:
        if trial["architecture"]:
            costs[trial["id"]] = grown_cost(output, trial["architecture"])
    operations = 0
    for trial, (train, evaluate) in costs.items():
        own = [r for r in records if r.get("trial") == trial and milliseconds(r["time"]) <= end_ms]
        epochs = {r["epoch"]: r for r in own if r["type"] == "epoch"}
        open_reports = [r for r in own if r["type"] == "progress" and r["epoch"] not in epochs]
        counted = [*epochs.values(), *open_reports[-1:]]
        operations += sum(r["images_trained"] * train + r["images_evaluated"] * evaluate for r in counted)
    correct = max(r["correct"] for r in records if r["type"] == "epoch" and milliseconds(r["time"]) <= end_ms)
    error = (VALIDATION - correct) / VALIDATION
    assert found["operations_total"] == operations
    assert found["score_ops"] == operations / seconds
    assert found["error"] == error
    assert found["regulated_score_ops"] == -log(error) * (operations / seconds)


def grown_cost(output: Path, name: str) -> tuple[int, int]:
    """Cost of a grown architecture, counted the other way: from the Keras model."""
    counted = count_model(build_model(read_architecture(output / "models" / name / "architecture.json")))
    return counted.operations.total, counted.operations.forward


def test_the_training_is_real(output: Path) -> None:
    records = raw_records(output)
    epochs = [record for record in records if record["type"] == "epoch"]
    assert epochs
    assert all((record["images_trained"], record["images_evaluated"]) == (TRAIN, VALIDATION) for record in epochs)
    assert all(0.1 < record["loss"] < 50 for record in epochs)
    found = report(output)
    assert "trainer" not in {violation["rule"] for violation in found["violations"]}
    assert found["replica_details"][0]["phases_s"]["train"] > 2


def test_children_start_from_the_kept_weights_of_their_parents(output: Path) -> None:
    found = report(output)
    first, second = found["trials"][:2]
    assert (first["state"], first["weights_from"], first["morphs"]) == ("completed", None, [])
    assert (second["parent"], second["weights_from"]) == (first["architecture"], 1)
    assert 1 <= len(second["morphs"]) <= 4
    assert second["failure_reason"] is None
    assert (output / "models" / first["architecture"] / "weights-000001.npz").exists()
    assert list(output.glob("models/*/.*")) == [], "no temporary file is left behind"
    assert list((output / "candidates").iterdir()) != []
    assert found["replica_details"][0]["phases_s"]["checkpoint"] > 0


def test_progress_is_recorded_as_often_as_configured(output: Path) -> None:
    records = [record for record in raw_records(output) if record.get("trial") == 1]
    (epoch,) = (milliseconds(record["time"]) for record in records if record["type"] == "epoch")
    train = next(milliseconds(r["time"]) for r in records if r["type"] == "phase" and r["phase"] == "train")
    reports = sum(record["type"] == "progress" for record in records)
    # A report follows a step, but not the last one of an epoch.
    most = TRAIN // BATCH - 1
    assert reports >= min(most, (epoch - train) // (4000 * REPORT_S)), "an interval, and the rest of a group of steps"
    assert reports
