"""A run in virtual time that has an architecture and points of each round to replay."""

import shutil
from pathlib import Path

import pytest

from aiperf.config.settings import load_config
from aiperf.run_directory.paths import RunPaths
from tests.support.virtual.lifecycle import conduct_virtually


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunPaths:
    """Two replicas, a round and three points in turn. Not to be changed."""
    config = load_config(
        overrides={
            "run.dataset": "digits",
            "run.replicas": 2,
            "run.duration": "15m",
            "training.max_epochs": 4,
            "training.trainer": "simulated",
            "simulated.epoch_seconds": 30.0,
            "search.hpo_first_round": 1,
            "search.hpo_points": 3,
        }
    )
    root = tmp_path_factory.mktemp("replay") / "run"
    # Cursors into a digest: tests/integration/runs/test_digest.py.
    assert conduct_virtually(root, config, with_digest=False) == "deadline"
    return RunPaths(root)


@pytest.fixture
def run(finished: RunPaths, tmp_path: Path) -> RunPaths:
    """A copy of the run."""
    shutil.copytree(finished.root, tmp_path / "run")
    return RunPaths(tmp_path / "run")
