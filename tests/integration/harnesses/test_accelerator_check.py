"""The check on a real card, tried on this machine's CPUs."""

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.folders import ROOT
from tests.support.trainings.installed import need_frameworks

SCRIPT = ROOT / "tools/gpu_check.sh"

LIMITS = {
    label: int(limit)
    for label, limit in re.findall(
        r"^([a-z]+(?:-[a-z]+)?) ([0-9]+) (?:benchmarks|pytest|pip)", SCRIPT.read_text(), re.M
    )
}
"""The limit of each step, by its label; those of frameworks begin with their name."""


def test_the_steps_of_the_default_end_within_8_minutes() -> None:
    default = {label: limit for label, limit in LIMITS.items() if not label.startswith("tensorflow-")}
    assert {"torch-cold", "torch-beside", "jax-cold", "torch-run"} <= default.keys()
    assert sum(default.values()) <= 480, default


@pytest.mark.timeout(900)
def test_every_step_is_done_and_every_figure_is_a_line_of_json(tmp_path: Path) -> None:
    need_frameworks("torch")
    environment = {**os.environ, "PYTHON": sys.executable, "FRAMEWORKS": "torch"}
    # On one CPU: threads wait long for each other where other processes have work, too.
    words = ["taskset", "-c", str(min(os.sched_getaffinity(0))), str(SCRIPT), str(tmp_path), "--tiny"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = (tmp_path / "summary.txt").read_text()
    assert "0 failed" in summary
    steps = [label for label in LIMITS if label.partition("-")[0] not in ("wheels", "jax", "tensorflow")]
    assert [line.partition(":")[0] for line in summary.splitlines()[:-1]] == steps
    figures = [json.loads(line) for line in (tmp_path / "figures.jsonl").read_text().splitlines()]
    found = {name for figure in figures for name in figure}
    assert found >= {
        "devices",
        "sample",
        "accelerators",
        "ready_s",
        "first_epoch_s",
        "images_per_s",
        "samples_under_load",
    }
    assert found >= {
        "shortage",
        "loss_error",
        "standby_slowdown",
        "kernel",
        "compile_s_warm",
        "graph_ratio",
        "score_ops",
    }
    assert {figure["loop"] for figure in figures if "loop" in figure} == {
        *("torch.graph", "torch.compiled", "torch.eager")
    }
    assert {figure["images"] for figure in figures if "images" in figure} == {"device", "jpegs"}
    assert {figure["batch"] for figure in figures if figure.get("trainer") and "images_per_s" in figure} == {8, 4}
    with tarfile.open(tmp_path / "logs.tar.gz") as logs:
        assert "logs/torch-run.txt" in logs.getnames()
        passed = logs.extractfile("logs/torch-contracts.txt")
        assert passed is not None
        assert b" passed" in passed.read()
    assert {path.name for path in tmp_path.iterdir()} == {"figures.jsonl", "summary.txt", "logs.tar.gz"}
