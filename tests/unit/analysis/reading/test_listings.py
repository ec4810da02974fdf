"""Reports of a run of which this node lists fewer files than there are."""

from pathlib import Path

import pytest

from aiperf.run_directory.paths import RunPaths
from analysis.reading.run_data import read_run
from tests.support.hand_made import HandMadeRun


def test_a_file_that_is_listed_too_late_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = HandMadeRun(tmp_path / "run").at(0).release(100).at(1).start_trial(1).at(5).epoch(1, 1)
    whole, listed = read_run(run.paths), RunPaths.history_files

    def without_replicas(paths: RunPaths, role: str = "*") -> list[Path]:
        return [file for file in listed(paths, role) if file.name.startswith("primary")]

    monkeypatch.setattr(RunPaths, "history_files", without_replicas)
    late = read_run(run.paths)
    assert len(whole.ledger.trials[1].epochs) == 1
    assert late.ledger.trials[1].epochs == whole.ledger.trials[1].epochs
    assert late.damages == whole.damages == ()
