"""Spaces of hyperparameters in NNI's format."""

import json
from pathlib import Path
from typing import Any

import pytest

from aiperf.config.settings import load_config
from aiperf.config.space import CHECKS, read_space
from aiperf.errors import ConfigError
from search_space.hyperparameters import (
    default_space_file,
)


def write(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_the_spaces_of_the_data_sets_are_valid() -> None:
    for dataset, batch in (("imagenet", 448), ("digits", 64)):
        space = read_space(default_space_file(dataset))
        assert [parameter.name for parameter in space] == ["kernel_size", "batch_size"]
        assert batch in space[1].values


def test_every_kind_of_nni_is_read(tmp_path: Path) -> None:
    values: dict[str, list[Any]] = {
        "choice": [1, 2.5, "a"],
        "randint": [3, 7],
        "uniform": [0, 1],
        "quniform": [1, 2, 0.4],
        "loguniform": [0.001, 1],
        "qloguniform": [1, 100, 10],
        "normal": [0, 1],
        "qnormal": [0, 4, 2],
        "lognormal": [0, 1],
        "qlognormal": [0, 1, 0.5],
    }
    assert values.keys() == CHECKS.keys()
    document = {kind: {"_type": kind, "_value": value} for kind, value in values.items()}
    space = read_space(write(tmp_path / "space.json", document), known=tuple(values))
    assert [parameter.kind for parameter in space] == list(values)
    assert [list(parameter.values) for parameter in space] == list(values.values())


def test_all_errors_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    document = {
        "kernal_size": {"_type": "choice", "_value": [3]},
        "kernel_size": {"_type": "uniform", "_value": [1, 5]},
        "batch_size": {"_type": "choice", "_value": [0, 64]},
        "learning_rate": {"_type": "loguniform", "_value": [0, 1]},
        "momentum": {"_type": "gaussian", "_value": [0, 1]},
        "label_smoothing": {"_type": "uniform", "_value": [0.3, 0.1]},
    }
    with pytest.raises(ConfigError) as error:
        read_space(write(tmp_path / "space.json", document))
    text = str(error.value)
    assert len(error.value.problems) == 6
    assert "kernal_size: unknown hyperparameter; known: kernel_size, batch_size" in text
    assert "kernel_size: must be whole numbers of at least 1: use choice or randint" in text
    assert "batch_size: must be whole numbers" in text
    assert "learning_rate: the lower bound 0 must be above 0" in text
    assert "momentum: _type is 'gaussian'; known: choice, randint" in text
    assert "label_smoothing: the lower bound 0.3 must be below the upper bound 0.1" in text


@pytest.mark.parametrize(
    "document",
    [
        "",
        "[]",
        "{}",
        '{"momentum": 3}',
        '{"momentum": {"_type": "choice"}}',
        '{"momentum": {"_type": "choice", "_value": []}}',
        '{"momentum": {"_type": "uniform", "_value": [1]}}',
        '{"momentum": {"_type": "uniform", "_value": 3}}',
    ],
)
def test_what_is_not_a_space_is_refused(tmp_path: Path, document: str) -> None:
    path = tmp_path / "space.json"
    path.write_text(document)
    with pytest.raises(ConfigError, match=r"space\.json"):
        read_space(path)
    with pytest.raises(ConfigError, match=r"search\.space: .*space\.json"):
        load_config(overrides={"search.space": str(path)})
