"""Make one rank slow: it waits before each of its training batches.

Python imports this module at its start if the folder is on PYTHONPATH. It does nothing but in the
rank that BENCHMARK_SLOW_RANK names, which waits BENCHMARK_DELAY_S seconds for every batch.
"""

import importlib.util
import os
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODULE = "replica.trainer.training"
"""Where the batches of a rank come from."""

RANK = os.environ.get("BENCHMARK_SLOW_RANK", "none")
"""Number of the slow rank among those of all groups."""

DELAY_S = float(os.environ.get("BENCHMARK_DELAY_S", "0"))


class Delaying(MetaPathFinder):
    """Changes the module when it is imported, once."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module's own spec, with a loader that changes the module."""
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        load = spec.loader.exec_module

        def load_slow(module: ModuleType) -> None:
            load(module)
            slow(module)

        spec.loader.exec_module = load_slow  # type: ignore[method-assign]
        return spec


def slow(module: Any) -> None:
    """Make every training batch of the slow rank's epochs late."""
    train = module.Epochs.train

    def late(epochs: Any, epoch: int) -> Iterator[Any]:
        for batch in train(epochs, epoch):
            if str(epochs._share.number) == RANK:
                time.sleep(DELAY_S)
            yield batch

    module.Epochs.train = late


if RANK != "none":
    sys.meta_path.insert(0, Delaying())
