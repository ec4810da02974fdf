"""Trainings of images in files in an environment that cannot import TensorFlow."""

import asyncio
import os
from pathlib import Path

import pytest

from aiperf.config.settings import load_config
from aiperf.network.architecture import Architecture, Node
from aiperf.network.json_files import to_json
from aiperf.network.layers import Conv, Dense, GlobalAveragePool, Input, Softmax
from replica.trainer.frameworks import FRAMEWORKS
from tests.support.images import CLASSES, SIDE, TRAIN, VALIDATION, make_shards
from tests.support.trainings.installed import need_frameworks
from tests.support.trainings.programs import collect, epochs_of
from tests.support.trainings.requests import request_for

BLOCK = """
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        missing = name.partition(".")[0] in ("tensorflow", "horovod")
        return None if missing else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""

SMALL = Architecture(
    (
        Node("in", Input(SIDE, SIDE, 3)),
        Node("conv", Conv(4, stride=(2, 2)), ("in",)),
        Node("pool", GlobalAveragePool(), ("conv",)),
        Node("fc", Dense(CLASSES), ("pool",)),
        Node("softmax", Softmax(), ("fc",)),
    )
)


@pytest.mark.parametrize("framework", [name for name in FRAMEWORKS if name != "tensorflow"])
def test_images_in_files_are_trained_where_tensorflow_cannot_be_imported(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_frameworks(framework)
    data = tmp_path / "data"
    make_shards(data)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(BLOCK)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]))
    (tmp_path / "architecture.json").write_text(to_json(SMALL))
    chosen = {"run.dataset": "images", "run.data_dir": str(data), "training.framework": framework}
    request = request_for("images", data, architecture_path=str(tmp_path / "architecture.json"))
    messages = asyncio.run(collect(load_config(overrides=chosen), request, tmp_path / "log"))
    (epoch,) = epochs_of(messages)
    assert (epoch.images_trained, epoch.images_evaluated) == (TRAIN, VALIDATION)
