"""The weights of a training's best epoch so far, kept in a file for children and for audits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from replica.trainer.model import weights
from search_space.inheritance import Weights

log = logging.getLogger(__name__)


class BestWeights:
    """The best weights so far, written in the background.

    A training that is killed leaves its best epoch, unless that is a few seconds old. While a file
    is being written, only the latest of the following ones is remembered. A file that cannot be
    written costs a warning in the log, and nothing else.
    """

    def __init__(self, path: Path, by_name: Callable[[list[Any]], Weights]) -> None:
        self._path = path
        self._by_name = by_name
        self._writer = ThreadPoolExecutor(1)
        self._best: tuple[int, list[Any]] | None = None
        self._written = 0

    def keep(self, epoch: int, values: list[Any]) -> None:
        """Write the weights of an epoch that is the best one so far."""
        self._best = epoch, values
        self._writer.submit(self._write)

    @property
    def values(self) -> list[Any] | None:
        """Weights of the best epoch, in Keras's order; None before the first one."""
        return self._best[1] if self._best else None

    def _write(self) -> None:
        assert self._best is not None
        epoch, values = self._best
        # Several calls may have waited while a file was written: the first of them writes the
        # latest.
        if epoch == self._written:
            return
        try:
            weights.save(self._path, self._by_name(values), epoch)
        except OSError as error:
            log.warning("weights %s were not written: %s", self._path, error)
        # Also if it failed: the calls that waited would warn once each for the same epoch.
        self._written = epoch

    def close(self) -> None:
        """Wait for the file."""
        self._writer.shutdown(wait=True)
