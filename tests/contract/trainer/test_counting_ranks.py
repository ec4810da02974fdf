"""Several ranks count the training images that all of them classify rightly."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from replica.trainer.collectives.rank import meeting_point
from replica.trainer.starters import STARTERS, RankRequest
from tests.support.trainings.installed import need_frameworks

STARTED_BY = {"tensorflow": "horovodrun", "jax": "processes", "torch": "processes"}

PROGRAM = """
import json, pathlib, sys

import numpy as np

from replica.trainer.frameworks import FRAMEWORKS

framework = FRAMEWORKS.load(sys.argv[1])()
own = framework.open_collective(2)
framework.configure(1, own.local_rank)

from aiperf.frameworks import import_lean
keras = import_lean("keras")
from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import Conv, Dense, Flatten, Input, Softmax
from replica.trainer.model.builder import build_model, set_up
from replica.trainer.model.optimisers import build_optimiser
from tests.support.trainings.requests import request_for
from workloads.classification import CLASSIFICATION

SIDE, CLASSES = 8, 3
network = Architecture((
    Node("in", Input(SIDE, SIDE, 3)), Node("conv", Conv(4), ("in",)), Node("flat", Flatten(), ("conv",)),
    Node("fc", Dense(CLASSES), ("flat",)), Node("softmax", Softmax(), ("fc",)),
))
rng = np.random.default_rng(own.rank)

def batch(count):
    labels = np.eye(CLASSES, dtype=np.float32)[rng.integers(CLASSES, size=count)]
    return rng.normal(size=(count, SIDE, SIDE, 3)).astype(np.float32), labels

request = request_for("digits", batch_size=40)
set_up("float32", seed=1)
model = build_model(network)
steps = framework.compile(model, build_optimiser(model, request), CLASSIFICATION, own, request)
steps.prepare(batch, (40,))
steps.share()
hits, counted = [], []
# In the second step rank 1 has no images left.
for count in (40, 25 if own.rank == 0 else 0):
    images, labels = batch(count)
    steps.weights()
    outputs = keras.ops.convert_to_numpy(model(images, training=True)) if count else np.zeros((0, CLASSES))
    hits.append(int((np.argmax(outputs, 1) == np.argmax(labels, 1)).sum()))
    steps.read([steps.train(images, labels)])
    counted.append(steps.take_correct())
pathlib.Path(sys.argv[2], f"{own.rank}.json").write_text(json.dumps({"hits": hits, "counted": counted}))
own.close()
"""


@pytest.mark.parametrize("framework", list(STARTED_BY))
def test_the_count_is_that_of_all_ranks_also_if_one_has_no_images(framework: str, tmp_path: Path) -> None:
    need_frameworks(framework)
    program = tmp_path / "rank.py"
    program.write_text(PROGRAM)
    command = (sys.executable, str(program), framework, str(tmp_path))
    words = STARTERS.load(STARTED_BY[framework])(RankRequest(command, 2))
    variables = {"KERAS_BACKEND": framework, "PYTHONPATH": os.pathsep.join(sys.path), **meeting_point(())}
    done = subprocess.run(
        words, env={**os.environ, **variables}, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[dict[str, Any]] = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    total = [sum(both) for both in zip(*(own["hits"] for own in found), strict=True)]
    assert 0 < total[0] < 80
    assert 0 < total[1] < 25
    assert [own["counted"] for own in found] == [total, total]
