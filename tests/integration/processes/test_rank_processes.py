"""Ranks as processes: their starter and their priority."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from replica.trainer.__main__ import stay_near_accelerator
from replica.trainer.settings import TRAINING_NICENESS
from replica.trainer.starters import choose_starter


def test_the_starter_fits_the_ranks() -> None:
    assert choose_starter("auto", 1, 1) == "none"
    assert choose_starter("auto", 4, 1) == "horovodrun"
    assert choose_starter("mpirun", 1, 1) == "mpirun"


def test_ranks_that_train_give_way_to_ranks_that_warm_up() -> None:
    code = (
        "import os, threading; from replica.trainer.settings import yield_to_warm_up as y; "
        "threading.Thread(target=threading.Event().wait, daemon=True).start(); y(); "
        "print({os.getpriority(os.PRIO_PROCESS, int(t)) for t in os.listdir('/proc/self/task')})"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    own = os.getpriority(os.PRIO_PROCESS, 0)  # which only root may leave for a lower one
    assert shown.strip() in (str({TRAINING_NICENESS}), str({max(own, TRAINING_NICENESS)}))


def test_threads_of_a_rank_run_on_the_cpus_at_its_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    usable = os.sched_getaffinity(0)
    near = {max(usable)}
    monkeypatch.setattr("replica.trainer.__main__.near_cpus", lambda *_: frozenset(near))
    try:
        stay_near_accelerator(0, 1)
        with ThreadPoolExecutor(1) as later:
            assert later.submit(os.sched_getaffinity, 0).result() == near
        # A CPU that is gone is no reason not to train.
        monkeypatch.setattr("replica.trainer.__main__.near_cpus", lambda *_: frozenset({1023}))
        stay_near_accelerator(0, 1)
        assert os.sched_getaffinity(0) == near
    finally:
        os.sched_setaffinity(0, usable)
