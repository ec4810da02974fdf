"""Evidence of a training's epochs, written by rank 0 (`aiperf.run_directory.step_evidence`)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.run_directory.step_evidence import append_rows, hash_rows, rows_of

log = logging.getLogger(__name__)


class Evidence:
    """Takes the results of training steps, and writes those of an epoch at its end.

    A file that cannot be written costs a warning in the log, and the epoch its hash.
    """

    def __init__(self, path: str | None, rank: int) -> None:
        self._path = Path(path) if path is not None and rank == 0 else None
        self._results: list[NDArray[np.float32]] = []

    @property
    def wanted(self) -> bool:
        """True on the rank that writes, if evidence is asked for."""
        return self._path is not None

    def add(self, results: NDArray[np.float32]) -> None:
        """Take what some steps gave: loss, images and gradient norm, (steps, 3)."""
        if self.wanted:
            self._results.append(results)

    def close(self, epoch: int) -> str | None:
        """Append the rows of an epoch to the file; their SHA-256."""
        if self._path is None or not self._results:
            return None
        loss, images, norms = np.concatenate(self._results).astype(np.float64).T
        self._results = []
        rows = rows_of(epoch, loss / np.maximum(images, 1), norms)
        return hash_rows(rows) if self._append(self._path, rows) else None

    @staticmethod
    def _append(path: Path, rows: NDArray[Any]) -> bool:
        try:
            append_rows(path, rows)
        except OSError as error:
            log.warning("evidence %s was not written: %s", path, error)
            return False
        return True
