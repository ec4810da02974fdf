"""Steps on random data: every framework trains networks with several outputs of any shape."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from aiperf.network.architecture import Architecture, Node
from aiperf.network.json_files import to_json
from aiperf.network.layers import BatchNorm, Conv, ConvTranspose, Dense, Dropout, Flatten, InputArray, LeakyReLU
from replica.measure.profile.networks import NETWORK_STEPS
from tests.support.folders import ROOT
from tests.support.trainings.installed import need_frameworks

VOLUMES = Architecture(
    (
        Node("in", InputArray((8, 8, 8, 2))),
        Node("conv", Conv(4, (3, 3, 3), (2, 2, 2), dilation=(1, 1, 1), bias=True), ("in",)),
        Node("bn", BatchNorm(), ("conv",)),
        Node("act", LeakyReLU(0.2), ("bn",)),
        Node("drop", Dropout(0.5), ("act",)),
        Node("up", ConvTranspose(1, (3, 3, 3), (2, 2, 2)), ("drop",)),
        Node("flat", Flatten(), ("act",)),
        Node("fc", Dense(3), ("flat",)),
    ),
    ("up",),
)
"""An encoder with two heads: a volume, and a vector."""

PROGRAM = """
import json, sys
from types import SimpleNamespace
from aiperf.frameworks import import_lean
keras = import_lean("keras")
import numpy as np
from pathlib import Path
from aiperf.network.json_files import read_architecture
from replica.measure.profile.networks import NETWORK_STEPS
from replica.measure.profile.networks.batches import RandomBatches
from replica.trainer.collectives.alone import AloneCollective
from replica.trainer.model import builder
from replica.trainer.model.optimisers import build_optimiser

def work(framework, file, precision):
    builder.set_up(precision, 1)
    model = builder.build_model(read_architecture(Path(file)))
    request = SimpleNamespace(learning_rate=0.05, max_epochs=1000, momentum=0.9, precision=precision, hybrid=None)
    optimiser = build_optimiser(model, request)
    steps = NETWORK_STEPS.load(framework)(model, optimiser, AloneCollective(), 4, False)
    (images,) = next(iter(RandomBatches.of(model.input_shape[1:], 4)))
    numbers = [keras.ops.convert_to_numpy(each).astype(np.float64) for each in model(images, training=False)]
    before = steps.state()
    first = steps.read([steps.evaluate(images)])
    losses = [steps.read([steps.train(images)])[0] for _ in range(20)]
    after = steps.state()
    return {
        "outputs": [list(each.shape) for each in numbers], "mean_square": sum(np.mean(each**2) for each in numbers),
        "first": first[0], "losses": losses, "last": steps.read([steps.evaluate(images)])[0],
        "moved": [bool(np.any(old != new)) for old, new in zip(before, after) if old.ndim and old.dtype.kind == "f"],
    }

framework, file, *precisions = sys.argv[1:]
print(json.dumps({precision: work(framework, file, precision) for precision in precisions}))
"""


PRECISIONS = ("float32", "mixed_float16")

Work = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """What a framework did, by precision: its import takes longer than the work."""
    file = tmp_path_factory.mktemp("steps") / "volumes.json"
    file.write_text(to_json(VOLUMES))

    @cache
    def done_by(framework: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-P", "-c", PROGRAM, framework, str(file), *PRECISIONS],
            env={**os.environ, "KERAS_BACKEND": framework, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout.splitlines()[-1]))

    return done_by


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("framework", tuple(NETWORK_STEPS))
def test_a_step_lowers_the_mean_square_of_all_outputs(framework: str, precision: str, work: Work) -> None:
    need_frameworks(framework)
    found = work(framework)[precision]
    assert found["outputs"] == [[4, 8, 8, 8, 1], [4, 3]]
    assert found["first"] == pytest.approx(found["mean_square"], rel=1e-4 if precision == "float32" else 2e-2)
    assert found["losses"][0] > 0
    assert found["losses"][-1] < found["losses"][0] / 2
    assert found["last"] != found["first"]
    # Seven variables (kernels, biases, gamma, beta), their momenta, and two moving statistics.
    assert found["moved"] == [True] * (7 * 2 + 2)
