"""The state of a training after an epoch, kept so that another process can go on from there."""

from __future__ import annotations

import logging
import time
import zipfile
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aiperf.files import atomic_file
from aiperf.messages import Begin
from replica.trainer.collectives import Collective

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """What, beside model and optimiser, a training knows after an epoch."""

    accuracies: list[float]
    """Of the epochs so far."""
    best_weights: list[Any] | None


class Checkpoints:
    """Rank 0 writes in the background, at most one at a time; every rank goes on from what rank 0 has read.

    A checkpoint that cannot be written costs a warning in the log; one that cannot be read is not used.
    """

    def __init__(self, begin: Begin, model: Any, optimizer: Any, collective: Collective) -> None:
        self._path = Path(begin.checkpoint_path) if begin.checkpoint_path else None
        self._interval_s = begin.checkpoint_interval_s
        self._variables = [*model.variables, *optimizer.variables]
        self._collective = collective
        self._writer = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None
        self._written_s = time.monotonic()

    def due(self) -> bool:
        """Whether to write now: the interval is over and the last one is on disk."""
        if self._path is None or (self._writing is not None and not self._writing.done()):
            return False
        return self._collective.rank == 0 and time.monotonic() - self._written_s >= self._interval_s

    def write(self, checkpoint: Checkpoint) -> None:
        """Take the state now and write it in the background."""
        arrays = {f"variable-{n:05d}": variable.numpy() for n, variable in enumerate(self._variables)}
        arrays["accuracies"] = np.array(checkpoint.accuracies, np.float64)
        for number, array in enumerate(checkpoint.best_weights or ()):
            arrays[f"best-{number:05d}"] = array
        self._written_s = time.monotonic()
        self._writing = self._writer.submit(self._save, arrays)

    def _save(self, arrays: dict[str, Any]) -> None:
        assert self._path is not None
        try:
            with atomic_file(self._path) as stream:
                np.savez(stream, **arrays)
        except OSError as error:
            log.warning("checkpoint %s was not written: %s", self._path, error)

    def restore(self) -> Checkpoint | None:
        """Set rank 0's model and optimiser to the kept state, if there is one; every rank gets the accuracies."""
        restored = self._load() if self._collective.rank == 0 and self._path is not None else None
        told = np.array(restored.accuracies if restored else [], np.float64).tobytes()
        accuracies = np.frombuffer(self._collective.broadcast(told), np.float64).tolist()
        return Checkpoint(accuracies, restored.best_weights if restored else None) if accuracies else None

    def _load(self) -> Checkpoint | None:
        assert self._path is not None
        if not self._path.exists():
            return None
        try:
            with np.load(self._path, allow_pickle=False) as archive:
                values = [archive[f"variable-{n:05d}"] for n in range(len(self._variables))]
                best = [archive[name] for name in sorted(archive.files) if name.startswith("best-")]
                accuracies = [float(value) for value in archive["accuracies"]]
            if [value.shape for value in values] != [tuple(variable.shape) for variable in self._variables]:
                raise ValueError("it is of another architecture")
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            log.warning("checkpoint %s cannot be used: %s", self._path, error)
            return None
        for variable, value in zip(self._variables, values, strict=True):
            variable.assign(value)
        return Checkpoint(accuracies, best or None)

    def close(self) -> None:
        """Wait for what is being written."""
        self._writer.shutdown(wait=True)
