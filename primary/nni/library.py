"""NNI, imported without what takes three quarters of its import, and its messages as plain JSON.

By itself it imports SciPy's distributions, to sample from ranges, and pandas, to write tables into
JSON. No run lets it do either, and each of its trials is a process. The tuner's process is NNI's
own, which has imported all of it.

NNI reads what arrives with `nni.load`, in which JSON may name Python symbols, which it imports and
calls.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from aiperf.frameworks import hidden
from aiperf.registry import uncollected

_DISTRIBUTIONS = "scipy.stats"


@contextmanager
def _without_distributions() -> Iterator[None]:
    """Meanwhile SciPy's distributions are names of nothing, unless they are imported."""
    if _DISTRIBUTIONS in sys.modules:
        yield
        return
    empty = ModuleType(_DISTRIBUTIONS)
    vars(empty).update(dict.fromkeys(("norm", "lognorm", "uniform", "loguniform")))
    sys.modules[_DISTRIBUTIONS] = empty
    try:
        yield
    finally:
        del sys.modules[_DISTRIBUTIONS]


with uncollected(), hidden("pandas"), _without_distributions():
    import nni
    from nni.experiment import Experiment, ExperimentConfig, launcher, rest
    from nni.experiment.config import CustomAlgorithmConfig

__all__ = [
    "CustomAlgorithmConfig",
    "Experiment",
    "ExperimentConfig",
    "launcher",
    "load",
    "nni",
    "read_plainly",
    "rest",
]


def load(text: str) -> Any:
    """The data of a JSON document. Raises ValueError."""
    return json.loads(text)


def read_plainly() -> None:
    """Let this process read all of NNI's messages as plain JSON: websocket, pipe, parameters."""
    nni.load = load
