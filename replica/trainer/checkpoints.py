"""The state of a training after an epoch, kept so that another process can resume it."""

import contextlib
import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from aiperf.clock import Clock
from aiperf.files import move, write_file
from aiperf.run_directory.paths import earlier_checkpoint
from aiperf.run_directory.step_evidence import hash_state
from aiperf.untrusted.arrays import read_arrays
from aiperf.untrusted.reading import reason_of
from aiperf.wire.messages import Begin
from replica.trainer.collectives.contract import Collective
from replica.trainer.model.weights import BestWeights

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """The knowledge of a training after an epoch, apart from the state of model and optimiser."""

    qualities: list[float]
    """Qualities of the epochs so far."""
    best_weights: list[Any] | None

    @property
    def best_epoch(self) -> int:
        """Number of the latest epoch with the best quality, whose weights are `best_weights`."""
        return max(range(1, len(self.qualities) + 1), key=lambda epoch: (self.qualities[epoch - 1], epoch))


@dataclass(frozen=True, slots=True)
class Taken:
    """A state that was taken, to be written, and its hash for the record of its epoch."""

    arrays: dict[str, NDArray[Any]]
    hash: str


class HasState(Protocol):
    """The part of `CompiledSteps` that a checkpoint needs."""

    def state(self) -> list[NDArray[Any]]:
        """Copies of all variables."""

    def restore(self, state: Sequence[NDArray[Any]]) -> None:
        """Set all variables. Raises ValueError if their shapes differ from the state's."""


class Checkpoints:
    """The checkpoints of a training: rank 0 writes and reads them for all ranks.

    Only a state whose hash is in the record of its epoch is restored (`Begin.states`): a file in
    its place is of another training, or not of any.

    It writes in the background, one at a time. The checkpoint before stays: a trainer that is
    stopped may have written the state after an epoch whose record was cut off, and a training that
    resumed from there would lack that epoch. A checkpoint that cannot be written or read costs a
    warning in the log, and nothing else.
    """

    def __init__(self, begin: Begin, steps: HasState, collective: Collective, clock: Clock) -> None:
        self._path = Path(begin.checkpoint_path) if begin.checkpoint_path else None
        self._restorable = frozenset(begin.states)
        self.resumed: str | None = None
        """The hash of the state that rank 0 has restored."""
        self._interval_s = begin.checkpoint_interval_s
        self._steps = steps
        self._collective = collective
        self._clock = clock
        self._writer = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None
        self._written_s = clock.monotonic_s()

    def due(self) -> bool:
        """True if it is time to write: the interval is over and the last one is on disk."""
        if self._path is None or (self._writing is not None and not self._writing.done()):
            return False
        return self._collective.rank == 0 and self._clock.monotonic_s() - self._written_s >= self._interval_s

    def take(self, checkpoint: Checkpoint) -> Taken:
        """Take the state as it is now."""
        # Copied now, in the training's own thread: the next step overwrites the variables.
        arrays = {f"variable-{n:05d}": value for n, value in enumerate(self._steps.state())}
        arrays["accuracies"] = np.array(checkpoint.qualities, np.float64)
        for number, array in enumerate(checkpoint.best_weights or ()):
            arrays[f"best-{number:05d}"] = array
        return Taken(arrays, hash_state(arrays))

    def write(self, taken: Taken) -> None:
        """Write a state in the background."""
        self._written_s = self._clock.monotonic_s()
        self._writing = self._writer.submit(self._save, taken.arrays)

    def _save(self, arrays: dict[str, Any]) -> None:
        assert self._path is not None
        try:
            # A process that is killed between the two leaves the earlier state under its other
            # name, where `_load` finds it.
            with contextlib.suppress(FileNotFoundError):
                move(self._path, earlier_checkpoint(self._path))
            write_file(self._path, lambda stream: np.savez(stream, **arrays))
        except OSError as error:
            log.warning("checkpoint %s was not written: %s", self._path, error)

    def resume(self, kept: BestWeights | None) -> list[float]:
        """Restore; give the qualities of the epochs before, whose best weights are kept."""
        restored = self.restore()
        if restored is None:
            return []
        if kept is not None and restored.best_weights is not None:
            kept.keep(restored.best_epoch, restored.best_weights)
        return restored.qualities

    def restore(self) -> Checkpoint | None:
        """Set rank 0's state to the kept one, if there is one; every rank gets the qualities.

        States that are not in the records of their training are ignored.
        """
        restored = self._load() if self._collective.rank == 0 and self._restorable else None
        sent = np.array(restored.qualities if restored else [], np.float64).tobytes()
        qualities = np.frombuffer(self._collective.broadcast(sent), np.float64).tolist()
        # Every state has at least one epoch, so an empty message says that rank 0 has none.
        return Checkpoint(qualities, restored.best_weights if restored else None) if qualities else None

    def _load(self) -> Checkpoint | None:
        assert self._path is not None
        found = map(self._load_from, (self._path, earlier_checkpoint(self._path)))
        return next((checkpoint for checkpoint in found if checkpoint is not None), None)

    def _load_from(self, file: Path) -> Checkpoint | None:
        try:
            # Numbers in names have leading zeros: sorted, variables are in the order of the steps.
            arrays = read_arrays(file)
            if (found := hash_state(arrays)) not in self._restorable:
                log.warning("checkpoint %s is not a state in the records of its training", file)
                return None
            best = [array for name, array in arrays.items() if name.startswith("best-")]
            qualities = [float(value) for value in arrays["accuracies"]]
            self._steps.restore([array for name, array in arrays.items() if name.startswith("variable-")])
            self.resumed = found
        except FileNotFoundError:
            return None
        except Exception as error:  # of any kind: NumPy and zipfile raise what they come across
            log.warning("checkpoint %s cannot be used: %s", file, reason_of(error))
            return None
        return Checkpoint(qualities, best or None)

    def close(self) -> None:
        """Wait for the checkpoint that is being written."""
        self._writer.shutdown(wait=True)
