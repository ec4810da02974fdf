"""Checkpoints: the latest that the records know of is the one to resume from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiperf.clock import SystemClock
from aiperf.run_directory.paths import earlier_checkpoint
from aiperf.wire.messages import Begin
from replica.trainer.checkpoints import Checkpoint, Checkpoints
from replica.trainer.collectives.alone import AloneCollective


class Steps:
    """A model whose state is one number."""

    def __init__(self) -> None:
        self.number = 0.0

    def state(self) -> list[Any]:
        return [np.array(self.number)]

    def restore(self, state: Sequence[Any]) -> None:
        self.number = float(state[0])


def checkpoints(path: Path, steps: Steps, restore: int = 0) -> Checkpoints:
    begin = Begin(trial=1, checkpoint_path=str(path), restore=restore)
    return Checkpoints(begin, steps, AloneCollective(), SystemClock())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Checkpoints after epochs 1, 2 and 3."""
    path, steps = tmp_path / "checkpoint-000001.npz", Steps()
    for epoch in range(1, 4):
        steps.number = float(epoch)
        writer = checkpoints(path, steps)
        writer.write(Checkpoint([0.5] * epoch, None))
        writer.close()
    return path


def restored(path: Path, recorded: int) -> tuple[int, float]:
    """The epochs of the checkpoint that is restored, and the state of the model then."""
    steps = Steps()
    found = checkpoints(path, steps, recorded).restore()
    return len(found.qualities) if found else 0, steps.number


@pytest.mark.parametrize(("recorded", "epochs"), [(3, 3), (4, 3), (2, 2), (1, 0), (0, 0)])
def test_no_state_is_restored_that_is_ahead_of_the_records(path: Path, recorded: int, epochs: int) -> None:
    assert restored(path, recorded) == (epochs, float(epochs))


def test_a_kill_between_two_checkpoints_leaves_the_earlier_one(path: Path) -> None:
    path.replace(earlier_checkpoint(path))
    assert restored(path, 3) == (3, 3.0)
    path.write_bytes(b"PK torn")
    assert restored(path, 3) == (3, 3.0)
