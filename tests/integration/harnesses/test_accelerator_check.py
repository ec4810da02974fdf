"""The check on a real card, tried on this machine's CPUs."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.support.folders import ROOT
from tests.support.trainings.installed import need_frameworks


def test_the_check_is_done_to_its_end_and_every_figure_is_a_line_of_json(tmp_path: Path) -> None:
    need_frameworks("torch")
    environment = {**os.environ, "PYTHON": sys.executable, "FRAMEWORKS": "torch"}
    words = [str(ROOT / "tools/gpu_check.sh"), str(tmp_path), "--tiny"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = (tmp_path / "summary.txt").read_text()
    assert "0 failed" in summary
    assert [line.partition(":")[0] for line in summary.splitlines()[1:-1]] == [
        *("devices", "torch-cold", "ratios", "torch-memory", "run", "report")
    ]
    figures = [json.loads(line) for line in (tmp_path / "figures.jsonl").read_text().splitlines()]
    found = {name for figure in figures for name in figure}
    assert found >= {"devices", "ready_s", "first_epoch_s", "images_per_s", "compile_s_cold", "kind", "score_ops"}
    with tarfile.open(tmp_path / "logs.tar.gz") as logs:
        assert "logs/run.txt" in logs.getnames()
    assert {path.name for path in tmp_path.iterdir()} == {"figures.jsonl", "summary.txt", "logs.tar.gz"}
