"""One suite for the collectives of all frameworks: real ranks compare what they exchanged."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from replica.trainer.collectives.rank import meeting_point
from replica.trainer.frameworks import FRAMEWORKS
from replica.trainer.starters import STARTERS, RankRequest
from tests.support.machines import Machine
from tests.support.trainings.installed import need_frameworks

RANKS = {"tensorflow": ("horovodrun", 3), "jax": ("processes", 2), "torch": ("processes", 2)}
"""The starter and the number of ranks.

A framework that is missing here fails the test of several ranks.
"""

MEASURED = ("tensorflow", "torch")
"""Those whose ranks tell the exchange of gradients from computing, on CPUs."""

PROGRAM = """
import json, pathlib, sys
from replica.trainer.frameworks import FRAMEWORKS
open_collective = FRAMEWORKS.load(sys.argv[1])().open_collective
from aiperf.frameworks import import_lean
keras = import_lean("keras")
import numpy as np
from aiperf import host
from aiperf.errors import TrialFailedError

framework, ranks, folder = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
refused = ""
try:
    if ranks > 1:
        open_collective(ranks + 1)
except TrialFailedError as error:
    refused = error.kind
own = open_collective(ranks)
sent = bytes([own.rank + 1]) * 1000 if own.rank == 0 else b""
received = own.broadcast(sent)
empty = own.broadcast(b"")
# More than PyTorch's store takes, and bits that no arithmetic leaves alone: denormal, -0, a NaN's.
bits = np.full(3_000_000, 0x00000001, np.uint32)
bits[1:3] = 0x80000000, 0x7F800001
vector = bits.view(np.float32) if own.rank == 0 else np.empty(len(bits), np.float32)
alike = bool((own.broadcast_vector(vector).view(np.uint32) == bits).all())
texts = own.gather("é" * own.rank)
left = [n for n in range(3) if framework == "torch" and ranks > 1 and own._store.check([f"aiperf-{n}-1"])]
host.ROOT = folder / f"node {own.rank}"
places = own.gather_places()
host.ROOT = pathlib.Path("/")
shared = [keras.Variable([float(own.rank), 5.0]), keras.Variable(float(own.rank + 7))]
own.broadcast_variables(shared)
averaged = [keras.Variable([float(own.rank), 1.0]), keras.Variable(2.0 * own.rank)]
own.average_variables(averaged)
own.average_variables([])

def add():
    return own.sum_tensors([keras.ops.convert_to_tensor([1.0, own.rank]), keras.ops.convert_to_tensor(2.0)], "sums")

def reduce():
    # Not a constant, of which TensorFlow makes the sum once and for all.
    return own.sum_tensors([keras.ops.convert_to_tensor(shared[0]) * 2.0], "gradients")

def average():
    # This rank's mean gradients over rank + 1 images.
    gradients = [keras.ops.convert_to_tensor([[1.0 + own.rank, 3.0]]), keras.ops.convert_to_tensor(2.0 * own.rank)]
    totals, means = own.average_gradients(gradients, keras.ops.convert_to_tensor([0.5, own.rank + 1.0]))
    return [totals, *means]

if framework == "tensorflow":
    import tensorflow
    average = tensorflow.function(average)
    add, reduce = tensorflow.function(add), tensorflow.function(reduce)

def plain(values):
    return [keras.ops.convert_to_numpy(value).tolist() for value in values]

found = {
    "rank": own.rank, "size": own.size, "local_rank": own.local_rank, "refused": refused,
    "received": [len(received), received[0], len(empty)],
    "alike": alike,
    "left": left,
    "texts": texts,
    "places": places,
    "shared": plain(shared),
    "averaged": plain(averaged),
    "summed": plain(add()),
    "before": own.take_exchange_s(),
    "gradients": plain(average()),
}
own.take_exchange_s()
reduce()
reduce()
found["exchange_s"] = own.take_exchange_s()
found["after"] = own.take_exchange_s()
(folder / f"{own.rank}.json").write_text(json.dumps(found))
own.close()
"""


@pytest.mark.parametrize(("framework", "alone"), [("tensorflow", True), *((name, False) for name in FRAMEWORKS)])
def test_ranks_exchange_bytes_variables_and_sums(framework: str, alone: bool, tmp_path: Path) -> None:
    starter, ranks = ("none", 1) if alone else RANKS[framework]
    need_frameworks(framework)
    program = tmp_path / "rank.py"
    program.write_text(PROGRAM)
    command = (sys.executable, str(program), framework, str(ranks), str(tmp_path))
    words = STARTERS.load(starter)(RankRequest(command, ranks))
    for rank in range(ranks):
        Machine(cpus=8, affinity=f"{rank}-3,7", host=f"n{rank}").write(tmp_path / f"node {rank}")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **meeting_point(())}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[dict[str, Any]] = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(ranks)]
    mean = (ranks - 1) / 2
    for rank, own in enumerate(found):
        assert (own["rank"], own["size"], own["local_rank"]) == (rank, ranks, rank)
        assert own["refused"] == ("" if alone else "ranks")
        assert own["received"] == [1000, 1, 0]
        assert own["alike"]
        assert own["left"] == [], "a store that keeps what was read would grow with every step"
        assert own["texts"] == ["é" * rank for rank in range(ranks)]
        assert own["places"] == [[f"n{rank}", f"{rank}-3,7", ""] for rank in range(ranks)]
        assert own["shared"] == [[0.0, 5.0], 7.0]
        assert own["averaged"] == [[mean, 1.0], 2 * mean]
        assert own["summed"] == [[ranks, ranks * mean], 2 * ranks]
        images = [rank + 1 for rank in range(ranks)]
        weighted = [sum(count * value for value, count in enumerate(images, first)) / sum(images) for first in (1, 0)]
        totals, first, second = own["gradients"]
        assert totals == [0.5 * ranks, sum(images)]
        assert first[0] == pytest.approx([weighted[0], 3.0])
        assert second == pytest.approx(2 * weighted[1])
        if framework in MEASURED and not alone:
            assert not own["before"], "only the sums of gradients count"
            assert own["after"] == 0, "and once"
            assert own["exchange_s"] > 0
        else:
            assert (own["before"], own["exchange_s"], own["after"]) == (None, None, None)


WAITING = """
import sys, time
from datetime import timedelta
from torch import distributed, tensor
from replica.trainer.frameworks.torch.collective import TorchCollective

limit_s = float(sys.argv[1])
together = TorchCollective(2, limit=timedelta(seconds=limit_s))
assert not distributed.is_initialized(), "ranks that are warm hold no communicator"
assert len(together.gather("warm")) == 2
if together.rank == 0:
    time.sleep(limit_s + 3)
assert together.broadcast(b"begin" if together.rank == 0 else b"") == b"begin"
assert together.sum_tensors([tensor([1.0])], "sums")[0].item() == 2
together.close()
"""


def test_ranks_that_wait_longer_than_the_limit_of_an_exchange_train_on(tmp_path: Path) -> None:
    need_frameworks("torch")
    program = tmp_path / "rank.py"
    program.write_text(WAITING)
    for limit_s in (2, 15, 60):  # in which ranks on a busy machine must also meet
        words = STARTERS.load("processes")(RankRequest((sys.executable, str(program), str(limit_s)), 2))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **meeting_point(())}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=500, check=False)
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stdout + done.stderr


FULL = """
import sys, torch
from torch import distributed
from aiperf.errors import TrialFailedError
from replica.trainer.__main__ import kind_of
from replica.trainer.frameworks.torch.collective import TorchCollective
from replica.trainer.frameworks.torch.framework import Torch

def raising(error):
    def all_reduce(tensor):
        raise error
    return all_reduce

alone = TorchCollective(1)
alone.sum_tensors([torch.ones(1)], "sums")
distributed.all_reduce = raising(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 98 MiB."))
try:
    alone.sum_tensors([torch.ones(1)], "sums")
except torch.OutOfMemoryError as error:
    assert kind_of(error, Torch()) == "out_of_memory"
else:
    raise AssertionError
distributed.all_reduce = raising(RuntimeError("Connection closed by peer"))
try:
    alone.sum_tensors([torch.ones(1)], "sums")
except TrialFailedError as error:
    assert error.kind == "rank_lost"
else:
    raise AssertionError
alone.close()
"""


def test_memory_that_is_short_in_an_exchange_is_no_lost_rank() -> None:
    need_frameworks("torch")
    numbers = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    environment = {**os.environ, **numbers, **meeting_point(())}
    done = subprocess.run([sys.executable, "-c", FULL], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
