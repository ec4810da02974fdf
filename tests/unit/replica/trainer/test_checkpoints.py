"""Checkpoints: the latest that the records know of is the one to resume from."""

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiperf.clock import SystemClock
from aiperf.run_directory.paths import earlier_checkpoint
from aiperf.storage.patience import PATIENCE
from aiperf.wire.messages import Begin
from replica.trainer.checkpoints import Checkpoint, Checkpoints
from replica.trainer.collectives.alone import AloneCollective
from replica.trainer.model.weights import epoch_of, save
from tests.support.machines import refuse


class Steps:
    """A model whose state is one number."""

    def __init__(self) -> None:
        self.number = 0.0

    def state(self) -> list[Any]:
        return [np.array(self.number)]

    def restore(self, state: Sequence[Any]) -> None:
        self.number = float(state[0])


def checkpoints(path: Path, steps: Steps, states: Sequence[str] = ()) -> Checkpoints:
    begin = Begin(trial=1, checkpoint_path=str(path), restore=len(states), states=tuple(states))
    return Checkpoints(begin, steps, AloneCollective(), SystemClock())


def write(path: Path, epoch: int, number: float) -> str:
    """Write the checkpoint after an epoch; its hash."""
    steps = Steps()
    steps.number = number
    writer = checkpoints(path, steps)
    taken = writer.take(Checkpoint([0.5] * epoch, None))
    writer.write(taken)
    writer.close()
    return taken.hash


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The place of a checkpoint."""
    return tmp_path / "checkpoint-000001.npz"


@pytest.fixture
def states(path: Path) -> list[str]:
    """The hashes of checkpoints after epochs 1, 2 and 3; the last two are there."""
    return [write(path, epoch, float(epoch)) for epoch in range(1, 4)]


def restored(path: Path, states: Sequence[str]) -> tuple[int, float]:
    """The epochs of the checkpoint that is restored, and the state of the model then."""
    steps = Steps()
    found = checkpoints(path, steps, states).restore()
    return len(found.qualities) if found else 0, steps.number


@pytest.mark.parametrize(("recorded", "epochs"), [(3, 3), (2, 2), (1, 0), (0, 0)])
def test_no_state_is_restored_that_is_ahead_of_the_records(
    path: Path, states: list[str], recorded: int, epochs: int
) -> None:
    assert restored(path, states[:recorded]) == (epochs, float(epochs))


def test_a_state_that_no_record_names_is_not_restored(path: Path, states: list[str]) -> None:
    """Weights from outside, in a file like that of the epoch: the one before is taken."""
    planted = write(path, 3, 99.0)
    assert planted not in states
    assert restored(path, states) == (3, 3.0), "the checkpoint before, which is recorded"
    write(path, 3, 98.0)
    assert restored(path, states) == (0, 0.0)


def test_the_state_that_was_resumed_from_is_known(path: Path, states: list[str]) -> None:
    resumed = checkpoints(path, Steps(), states)
    resumed.restore()
    assert resumed.resumed == states[2]


def test_a_kill_between_two_checkpoints_leaves_the_earlier_one(path: Path, states: list[str]) -> None:
    path.replace(earlier_checkpoint(path))
    assert restored(path, states) == (3, 3.0)
    path.write_bytes(b"PK torn")
    assert restored(path, states) == (3, 3.0)


def test_storage_that_refuses_for_a_while_costs_no_epoch(
    path: Path, states: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    save(kept := path.with_name("weights.npz"), {}, epoch=4)
    with PATIENCE.set(60):
        refuse(monkeypatch, errno.ESTALE, errno.EIO)
        assert restored(path, states) == (3, 3.0)
        refuse(monkeypatch, errno.ESTALE, errno.EIO)
        assert epoch_of(kept) == 4
