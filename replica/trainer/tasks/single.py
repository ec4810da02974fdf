"""What tasks with one network and one loss have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from replica.trainer.tasks.contract import Part


class SingleNetwork:
    """The part of `Task` that follows from one network."""

    target_shape: tuple[int, ...]

    def __init__(self, networks: Mapping[str, Any], seed: int) -> None:
        (self.network,) = networks.values()
        self.parts = (Part("network", list(self.network.trainable_variables)),)
        self.input_shape = tuple(self.network.input_shape[1:])
