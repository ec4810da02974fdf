"""The runs that forgeries start from: an official one and a simulated one. Not to be changed."""

import io
from pathlib import Path

import pytest

from analysis.results.source import RunResult, read_result
from tests.integration.runs.test_virtual_time import run_for_hours
from tests.support.virtual.official_run import official_run


@pytest.fixture(scope="session")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of the runs by name."""
    folder = tmp_path_factory.mktemp("forgeries")
    run_for_hours(folder / "simulated", io.StringIO())
    return {"official": official_run(folder / "official").root, "simulated": folder / "simulated"}


@pytest.fixture(scope="session")
def honest(bases: dict[str, Path]) -> RunResult:
    """The official run as it is read."""
    return read_result(bases["official"])
