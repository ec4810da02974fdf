"""The state of a hybrid training for a checkpoint: one group's model, and the servers' vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replica.trainer.framework import CompiledSteps
from replica.trainer.servers.client import Servers, ServerState
from replica.trainer.servers.protocol import Sharding
from replica.trainer.servers.shard import Recipe


@dataclass
class HybridState:
    """The state of a hybrid training on rank 0: the model's variables, then each server's version
    and vectors (`HasState`)."""

    steps: CompiledSteps
    servers: Servers
    sharding: Sharding
    recipe: Recipe
    meanwhile: Callable[[], None]
    """What rank 0 does while it waits for the servers to have the same updates."""
    restored: Sequence[ServerState] = ()
    """The state that the servers start from; empty if no checkpoint was found."""

    def state(self) -> list[NDArray[Any]]:
        """Copies of the model's variables, and the servers' state as of now."""
        found = self.steps.state()
        for server in self.servers.states(self.meanwhile):
            found += [np.array(server.version, np.int64), *(server.vectors[name] for name in self._names)]
        return found

    def restore(self, state: Sequence[NDArray[Any]]) -> None:
        """Set the model's variables, and keep the rest for the servers.

        Raises ValueError if the state is of another model, or of other servers.
        """
        sizes = self.sharding.sizes()
        # The servers' part has the same number of arrays for each, so that it is found from the
        # end: how many variables the model has need not be known.
        width = 1 + len(self._names)
        own, others = state[: len(state) - width * len(sizes)], state[len(state) - width * len(sizes) :]
        shapes = [shape for size in sizes for shape in ((), *[(size,)] * (width - 1))]
        if [vector.shape for vector in others] != shapes:
            raise ValueError("it is of other parameter servers")
        self.steps.restore(own)
        self.restored = [
            ServerState(dict(zip(self._names, others[start + 1 : start + width], strict=True)), int(others[start]))
            for start in range(0, len(others), width)
        ]

    @property
    def _names(self) -> tuple[str, ...]:
        return self.recipe.names
