"""The storage of a node in a screening: through readers and writers of a run, on real files."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from aiperf.config.settings import load_config
from aiperf.screening.messages import Row, ScreenRequest
from replica.measure.screen.storage import BLOCKS, FILE_BYTES, QUICK_S, Subject, storage_rows
from tests.support.images import SIDE, make_folders, make_shards, silent
from workloads.datasets.check import describe

RUN = ["record", "run_write", "run_read", "run_opens"]


def ticking() -> Callable[[], float]:
    """A clock by which each call of a block takes as long as the block may."""
    ticks = count()
    return lambda: next(ticks) * QUICK_S / BLOCKS


def measured(folder: Path, **settings: object) -> dict[str, Row]:
    config = load_config(overrides={"training.framework": "torch", "training.batch_size": 4, **settings})
    request = ScreenRequest(config=config, folder=str(folder), quick=True)
    (own := folder / "storage").mkdir()
    return {row.measure: row for row in storage_rows(Subject(request, 0, own, ticking()))}


def make_described(folder: Path) -> None:
    make_folders(folder)
    describe(folder, SIDE, silent, workers=1)


@pytest.mark.parametrize("make", [make_shards, make_described])
def test_data_set_and_run_directory_are_measured(make: Callable[[Path], object], tmp_path: Path) -> None:
    make(tmp_path / "images")
    found = measured(tmp_path, **{"run.dataset": "images", "run.data_dir": str(tmp_path / "images")})
    assert list(found) == [*RUN, "data_opens", "data_read", "input"]
    assert {name: row.problem for name, row in found.items() if row.value is None} == {}
    assert found["run_write"].value == pytest.approx(FILE_BYTES / (QUICK_S / BLOCKS))
    assert found["input"].value == pytest.approx(4 / (QUICK_S / BLOCKS)), "a batch of four in each block"


def test_a_data_set_without_files_is_not_read(tmp_path: Path) -> None:
    assert list(measured(tmp_path, **{"run.dataset": "digits"})) == RUN


def test_a_data_set_that_is_missing_costs_its_own_rows(tmp_path: Path) -> None:
    make_shards(tmp_path / "images")
    settings = {"run.dataset": "images", "run.data_dir": str(tmp_path / "images")}
    config = load_config(overrides={"training.framework": "torch", **settings})
    (tmp_path / "images" / "dataset.json").unlink()
    subject = Subject(ScreenRequest(config=config, folder=str(tmp_path), quick=True), 0, tmp_path, ticking())
    found = {row.measure: row for row in storage_rows(subject)}
    assert [name for name, row in found.items() if row.value is None] == ["data_opens", "data_read", "input"]
    assert "dataset.json" in (found["data_read"].problem or "")
    assert found["record"].value is not None
