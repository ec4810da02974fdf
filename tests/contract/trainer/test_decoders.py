"""Processes that decode images in place of threads: the same batches, and none left behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from aiperf.errors import TrialFailedError
from aiperf.host import Host
from aiperf.machine.vendors import Accelerator
from replica.trainer.data.contract import RankShare
from replica.trainer.data.portable import decoders
from replica.trainer.data.portable.crops import Crops
from replica.trainer.data.portable.decoders import Decoder, Decoders, open_decoders
from tests.support.images import make_folders, make_shards, silent, source_for
from tests.support.trainings.requests import request_for
from workloads.datasets.check import describe

GPU = Accelerator(0, "NVIDIA H100", 80 << 30, "mixed_bfloat16", "580")


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Decoders]:
    """A node with 64 CPUs and a GPU, where two processes decode."""
    own = Decoders()
    monkeypatch.setattr(decoders, "MOST_THREADS", 1)
    monkeypatch.setattr(decoders, "DECODERS", own)
    monkeypatch.setattr(decoders, "find_accelerators", lambda: (GPU,))
    monkeypatch.setattr(Host, "usable_cpus", lambda _: 64)
    yield own
    for process in own.processes:
        process.kill()
        process.communicate()  # closes the pipes


@pytest.mark.parametrize(("cpus", "gpus", "asked", "workers"), [(64, 1, 48, 48), (64, 0, 48, 0), (1, 8, 48, 0)])
def test_processes_decode_for_accelerators_if_there_are_cpus_for_them(
    cpus: int, gpus: int, asked: int, workers: int, node: Decoders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Host, "usable_cpus", lambda _: cpus)
    monkeypatch.setattr(decoders, "find_accelerators", lambda: (GPU,) * gpus)
    started: list[int] = []
    monkeypatch.setattr(node, "start", started.append)
    decoding = open_decoders(request_for("images", parallel_decode=asked))
    assert started == ([workers] if workers else [])
    assert decoding.workers == min(cpus, asked)


def test_a_rank_without_dali_is_unfit_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(TrialFailedError, match=r"NVIDIA DALI is not installed .*\[dali\]") as caught:
        open_decoders(request_for("images", decoder="dali"))
    assert caught.value.kind == "unfit"


@pytest.mark.parametrize("form", ["shards", "folders"])
def test_processes_make_the_batches_of_threads(form: str, tmp_path: Path, node: Decoders) -> None:
    if form == "shards":
        make_shards(tmp_path)
    else:
        make_folders(tmp_path)
        describe(tmp_path, 32, silent, workers=1)
    found = []
    for workers in (1, 2):
        source = source_for("images", tmp_path, "numpy", parallel_decode=workers)
        share = RankShare(1, 2)
        found.append(
            [
                *source.train_batches(8, 1, 2, share),
                *source.validation_batches(8, share),
                *source.known_batches(8, 1, share),
            ]
        )
        assert len(node.processes) == (0 if workers == 1 else workers)
    for (one, one_labels), (other, other_labels) in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one_labels, other_labels)


def test_a_damaged_image_is_named_by_its_split_and_later_ones_are_decoded(tmp_path: Path, node: Decoders) -> None:
    make_folders(tmp_path)
    describe(tmp_path, 32, silent, workers=1)
    damaged = next((tmp_path / "train").rglob("*.JPEG"))
    whole = damaged.read_bytes()
    damaged.write_bytes(b"no image")
    source = source_for("images", tmp_path, "numpy", parallel_decode=2)
    with pytest.raises(TrialFailedError, match=r"train: cannot be decoded as JPEG; find it with") as caught:
        list(source.train_batches(8, 1, 1, RankShare()))
    assert caught.value.kind == "data"
    damaged.write_bytes(whole)
    assert sum(len(pixels) for pixels, _ in source.train_batches(8, 1, 1, RankShare())) == 46


def test_a_process_that_was_killed_is_a_lost_rank(node: Decoders) -> None:
    node.start(1)
    node.processes[0].kill()
    with pytest.raises(TrialFailedError, match=r"decoded images ended with -9") as caught:
        node.decode(Crops(32, None, 0, [b"never decoded"]), np.empty((1, 32, 32, 3), np.uint8))
    assert caught.value.kind == "rank_lost"


def test_processes_end_with_the_one_that_is_killed() -> None:
    code = f"from {Decoder.__module__} import Decoders as D; d = D(); d.start(1); print(); input()"
    owner = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    owner.stdout.readline()
    started = psutil.Process(owner.pid).children()
    assert len(started) == 1
    os.kill(owner.pid, signal.SIGKILL)
    owner.communicate()
    assert psutil.wait_procs(started, timeout=60)[1] == []
