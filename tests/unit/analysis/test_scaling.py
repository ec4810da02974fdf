"""Weak scaling over accelerators, and over ranks without any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.results.scaling import scaling_chart, scaling_rows
from analysis.results.source import RunResult, read_result
from testing.hand_made import HandMadeRun


def one_run(root: Path, replicas: int, epochs: int, devices: int) -> RunResult:
    """A run with a node for each replica, which have this many devices each."""
    run = HandMadeRun(root, {"run.replicas": replicas, "run.launcher": "ssh"}).at(0).release(100, replicas=replicas)
    run.at(1).start_trial(1)
    for epoch in range(1, epochs + 1):
        run.at(10 * epoch).epoch(1, epoch)
    nodes = {str(replica): {"host": f"n{replica}", "accelerators": devices} for replica in range(replicas)}
    run.paths.system.write_text(json.dumps(nodes))
    run.end(100)
    return read_result(root)


@pytest.mark.parametrize(("devices", "measure"), [(4, "accelerators"), (0, "ranks")])
def test_efficiency_is_relative_to_the_smallest_run(devices: int, measure: str, tmp_path: Path) -> None:
    runs = [one_run(tmp_path / "two", 2, 3, devices), one_run(tmp_path / "one", 1, 2, devices)]
    rows = scaling_rows(runs)
    assert [(row.replicas, row.accelerators, row.ranks) for row in rows] == [(1, devices, 1), (2, 2 * devices, 2)]
    assert [row.efficiency for row in rows] == [1.0, pytest.approx(0.75)]
    assert rows[1].ideal_ops == 2 * rows[0].score_ops
    assert measure in scaling_chart(rows).caption


def test_runs_without_a_score_have_no_row(tmp_path: Path) -> None:
    HandMadeRun(tmp_path).at(0).release(100).at(1).start_trial(1).at(20).epoch(1, 1)
    assert scaling_rows([read_result(tmp_path)]) == ()
