"""One suite for every registered collective: real ranks compare what they exchanged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from replica.trainer.collectives import COLLECTIVES
from replica.trainer.starters import STARTERS, RankRequest

RANKS = {"alone": ("none", 1), "horovod": ("horovodrun", 3)}
"""The starter and the number of ranks.

A collective that is missing here fails every test of the suite.
"""

PROGRAM = """
import json, pathlib, sys
import replica.trainer.tensorflow
import keras, tensorflow as tf
from aiperf.errors import TrialFailedError
from replica.trainer.collectives import COLLECTIVES

name, ranks, folder = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
open_collective = COLLECTIVES.load(name)
try:
    open_collective(ranks + 1)
    refused = ""
except TrialFailedError as error:
    refused = error.kind
own = open_collective(ranks)
sent = bytes([own.rank + 1]) * 1000 if own.rank == 0 else b""
received = own.broadcast(sent)
shared = [keras.Variable([float(own.rank), 5.0]), keras.Variable(float(own.rank + 7))]
own.broadcast_variables(shared)
averaged = [keras.Variable([float(own.rank), 1.0]), keras.Variable(2.0 * own.rank)]
own.average_variables(averaged)
own.average_variables([])
summed = tf.function(lambda: own.sum_tensors([tf.constant([1.0, own.rank]), tf.constant(2.0)], "sums"))()
found = {
    "rank": own.rank, "size": own.size, "local_rank": own.local_rank, "refused": refused,
    "received": [len(received), received[0]],
    "shared": [value.numpy().tolist() for value in shared],
    "averaged": [value.numpy().tolist() for value in averaged],
    "summed": [value.numpy().tolist() for value in summed],
}
(folder / f"{own.rank}.json").write_text(json.dumps(found))
own.close()
"""


@pytest.mark.parametrize("name", list(COLLECTIVES))
def test_ranks_exchange_bytes_variables_and_sums(name: str, tmp_path: Path) -> None:
    starter, ranks = RANKS[name]
    program = tmp_path / "rank.py"
    program.write_text(PROGRAM)
    command = (sys.executable, str(program), name, str(ranks), str(tmp_path))
    words = STARTERS.load(starter)(RankRequest(command, ranks))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[dict[str, Any]] = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(ranks)]
    mean = (ranks - 1) / 2
    for rank, own in enumerate(found):
        assert (own["rank"], own["size"], own["local_rank"]) == (rank, ranks, rank)
        assert own["refused"] == "ranks"
        assert own["received"] == [1000, 1]
        assert own["shared"] == [[0.0, 5.0], 7.0]
        assert own["averaged"] == [[mean, 1.0], 2 * mean]
        assert own["summed"] == [[ranks, ranks * mean], 2 * ranks]
