"""Ranks as processes: their starter and their priority."""

import os
import subprocess
import sys

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
