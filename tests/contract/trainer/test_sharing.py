"""What rank 0 has restored, on its way to the other ranks."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replica.trainer.collectives.alone import AloneCollective
from replica.trainer.model.state import KerasState


class Recording(AloneCollective):
    """Remembers what it was called for."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def broadcast_vector(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        self.calls.append("meet")
        return values

    def broadcast_variables(self, variables: Sequence[Any]) -> None:
        self.calls.append("share")


def test_ranks_meet_without_a_limit_before_they_share_what_rank_0_has_restored() -> None:
    together = Recording()
    nothing = SimpleNamespace(weights=[], variables=[])
    KerasState(nothing, nothing, together).share()
    assert together.calls == ["meet", "share"]
