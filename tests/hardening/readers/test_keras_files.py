"""Keras files from other people: read, or refused; nothing in them runs or fills the memory."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from replica.trainer.model.model_files import load_keras_file
from tests.support.fuzz import refusal


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files in a small network's archive."""
    return honest_files(tmp_path_factory.mktemp("keras"))


def honest_files(folder: Path) -> dict[str, bytes]:
    file = folder / "honest.keras"
    keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2, name="dense")]).save(file)
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(files: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return target.getvalue()


def told(tmp_path: Path, content: bytes) -> str:
    file = tmp_path / "model.keras"
    file.write_bytes(content)
    message = refusal(lambda: load_keras_file(file))
    assert sorted(item.name for item in tmp_path.iterdir()) == ["model.keras"]
    return message


def test_an_honest_file_is_read(honest: dict[str, bytes], tmp_path: Path) -> None:
    assert told(tmp_path, packed(honest)) == ""


def configured(honest: dict[str, bytes], **layer: Any) -> bytes:
    document = json.loads(honest["config.json"])
    document["config"]["layers"][1].update(layer)
    return packed({**honest, "config.json": json.dumps(document).encode()})


LAMBDA = {
    "class_name": "Lambda",
    "module": "keras.layers",
    "config": {
        "name": "l",
        "function": {"class_name": "__lambda__", "config": {"code": "4wAA", "defaults": None, "closure": None}},
    },
}
SYSTEM = {"class_name": "function", "module": "os", "config": "system", "registered_name": "function"}
DENSE = {"class_name": "Dense", "module": "keras.layers"}

LAYERS: dict[str, dict[str, Any]] = {
    "a lambda": LAMBDA,
    "a function of another module": {**DENSE, "config": {"name": "d", "units": 2, "activation": SYSTEM}},
    "a class of another module": {"class_name": "Popen", "module": "subprocess", "config": {"args": ["touch", "x"]}},
    "a model elsewhere": {"class_name": "TFSMLayer", "module": "keras.layers", "config": {"filepath": "/tmp/x"}},
    "no units": {**DENSE, "config": {"name": "d"}},
    "negative units": {**DENSE, "config": {"name": "d", "units": -1}},
    "units of 400 digits": {**DENSE, "config": {"name": "d", "units": 10**400}},
    "a petabyte": {**DENSE, "config": {"name": "d", "units": 10**14}},
    "units that are text": {**DENSE, "config": {"name": "d", "units": "two"}},
    "no configuration": {**DENSE, "config": None},
    "a list for a configuration": {**DENSE, "config": [1, 2]},
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_that_is_none_is_refused(
    name: str, honest: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "file").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert "cannot be read as a Keras model" in told(tmp_path / "file", configured(honest, **LAYERS[name]))
    assert list((tmp_path / "here").iterdir()) == []


def hostile(honest: dict[str, bytes]) -> dict[str, bytes]:
    bomb = bytes(64 << 20)
    return {
        "nothing": b"",
        "text": b"text",
        "a zip header": b"PK\x03\x04",
        "an empty zip": packed({}),
        "cut": packed(honest)[:-30],
        "a path that leads out": packed({**honest, "../../out": b"x"}),
        "an absolute path": packed({**honest, "/tmp/out": b"x"}),
        "another file": packed({**honest, "assets/x": b"x"}),
        "no weights": packed({name: honest[name] for name in ("config.json", "metadata.json")}),
        "weights that are none": packed({**honest, "model.weights.h5": b"x"}),
        "cut weights": packed({**honest, "model.weights.h5": honest["model.weights.h5"][:800]}),
        "a configuration that is a bomb": packed({**honest, "config.json": bomb}, zipfile.ZIP_DEFLATED),
        "weights that are a bomb": packed({**honest, "model.weights.h5": bomb}, zipfile.ZIP_DEFLATED),
        "a deep configuration": packed({**honest, "config.json": b'{"config":' * 50_000}),
        "a list for a configuration": packed({**honest, "config.json": b"[]"}),
        "a number of 5,000 digits": packed({**honest, "config.json": b'{"a": ' + b"9" * 5000 + b"}"}),
        "no UTF-8": packed({**honest, "config.json": b"\xff\xfe"}),
        "an HDF5 file": honest["model.weights.h5"],
        "another model's weights": packed({**honest, "model.weights.h5": _other_weights()}),
    }


def _other_weights() -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "x.keras"
        keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, name="dense")]).save(file)
        with zipfile.ZipFile(file) as archive:
            return archive.read("model.weights.h5")


def test_files_that_are_not_models_are_refused(honest: dict[str, bytes], tmp_path: Path) -> None:
    for number, (name, content) in enumerate(hostile(honest).items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert "cannot be read as a Keras model" in told(folder, content), name


def test_damaged_files_are_read_or_refused(honest: dict[str, bytes], tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    content = packed(honest)
    for _ in range(20):
        data = bytearray(content)
        for place in rng.integers(0, len(data), 5):
            data[place] ^= 1 << rng.integers(8)
        told(tmp_path, bytes(data))
