"""The compiled steps of detection and generation on two ranks: the weights and measures of one.

Their trainings take minutes, and their batch normalisation has the statistics of a rank's own
examples. So both ranks train the same batches here: the mean of their gradients is that of one. The
evaluation is split between them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replica.trainer.collectives.rank import meeting_point
from replica.trainer.starters import STARTERS, RankRequest
from tests.support.trainings.installed import need_frameworks

TASKS = ("detection", "generation")

PROGRAM = """
import json, pathlib, sys
import numpy as np
from replica.trainer.frameworks import FRAMEWORKS

folder, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
framework = FRAMEWORKS.load("torch")()
together = framework.open_collective(2)
framework.configure(1, together.local_rank)

from aiperf.frameworks import import_lean
keras = import_lean("keras")
from replica.trainer.collectives.alone import AloneCollective
from replica.trainer.model.optimisers import build_scheduled
from replica.trainer.science import gather_rows
from replica.trainer.tasks import TASKS
from replica.trainer.tasks.contract import trained_variables
from tests.support.trainings.requests import request_for
from tests.support.trainings.tasks import SMALL, examples
from workloads.science.contract import Schedule

request, sgd = request_for("", learning_rate=0.01), Schedule(optimiser="sgd", learning_rate=0.01)

def part(batch, collective):
    count = len(batch[0])
    own = slice(count * collective.rank // collective.size, count * (collective.rank + 1) // collective.size)
    return [values[own] for values in batch]

def steps_of(name, collective):
    keras.utils.set_random_seed(5 + collective.rank)
    task = TASKS.load(name)(SMALL[name])
    optimiser = build_scheduled(trained_variables(task), sgd, request)
    steps = framework.compile_task(task, optimiser, collective, request)
    steps.share()
    start = steps.weights()
    results = [steps.read([steps.train(*examples(name, 2, seed))])[0].tolist() for seed in (1, 2)]
    moved = sum(float(np.abs(a - b).sum()) for a, b in zip(start, steps.weights()))
    steps.average_statistics()
    steps.evaluate(*part(examples(name, 5, 3), collective))
    rows = gather_rows(collective, steps.take_rows())
    np.savez(folder / f"{name}-{collective.size}-{collective.rank}.npz", *steps.weights())
    return {"results": results, "rows": len(rows), "measures": task.measures(rows), "moved": moved}

found = {name: steps_of(name, together) for name in names}
if together.rank == 0:
    alone = {name: steps_of(name, AloneCollective()) for name in names}
    (folder / "alone.json").write_text(json.dumps(alone))
(folder / f"{together.rank}.json").write_text(json.dumps(found))
together.close()
"""

Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Found, list[Found]]:
    """A folder with the weights; what one process found alone, and what each of two ranks."""
    need_frameworks("torch")
    folder = tmp_path_factory.mktemp("ranks")
    program = folder / "rank.py"
    program.write_text(PROGRAM)
    command = (sys.executable, str(program), str(folder), *TASKS)
    words = STARTERS.load("processes")(RankRequest(command, 2))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **meeting_point(())}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    alone, *both = [json.loads((folder / f"{name}.json").read_text()) for name in ("alone", "0", "1")]
    return folder, alone, both


@pytest.mark.parametrize("task", TASKS)
def test_two_ranks_have_the_weights_and_the_measures_of_one(task: str, ranks: tuple[Path, Found, list[Found]]) -> None:
    folder, (one, two) = ranks[0], (ranks[1][task], [found[task] for found in ranks[2]])
    assert one["moved"] > 0.1, "the steps have trained"
    names = (f"{task}-1-0.npz", f"{task}-2-0.npz", f"{task}-2-1.npz")
    alone, *of_ranks = [list(np.load(folder / name).values()) for name in names]
    for own in of_ranks:
        for expected, values in zip(alone, own, strict=True):
            np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)
    for found in two:
        for (loss, images, norm), (expected_loss, _, expected_norm) in zip(
            found["results"], one["results"], strict=True
        ):
            assert images == 4, "of both ranks"
            assert loss == pytest.approx(2 * expected_loss, rel=1e-4)
            assert norm == pytest.approx(expected_norm, rel=1e-3)
        assert found["rows"] == one["rows"] == 5
        assert found["measures"] == pytest.approx(one["measures"], rel=1e-3, abs=1e-4)
    assert two[0]["measures"] == two[1]["measures"]
