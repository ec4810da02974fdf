"""The update of a group by parameter servers, which apply the mean gradient of its ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from replica.trainer.collectives.contract import Collective
from replica.trainer.hybrid.group import GroupCollective
from replica.trainer.model.state import assign, copied


class HybridUpdate:
    """Synchronous in a group, asynchronous between groups (Kurth et al. 2017).

    The mean over the group's images is that of `SynchronousUpdate`. The root sends it to the
    servers with the rate, which follows from the images that all groups have trained. Clipping
    needs the norm over all parameters, of which a server has a part: the root clips.
    """

    compilable = False
    traceable = False

    def __init__(self, optimiser: Any, collective: Collective) -> None:
        assert isinstance(collective, GroupCollective)
        self._optimiser = optimiser
        self._group = collective

    def apply(self, gradients: Sequence[Any], variables: Sequence[Any], sums: Any) -> tuple[Any, Sequence[Any]]:
        """Exchange the group's mean gradients for new values; not before the training begins."""
        exchange = self._group.exchange
        # Frameworks return before the device has computed: a copy waits, so that the lap is true.
        copied(sums)
        if exchange is not None:
            exchange.lap("computing")
        totals, means = (sums, gradients) if self._group.size == 1 else self._group.average_gradients(gradients, sums)
        if exchange is None:
            return totals, means
        # Only the root needs the gradients on the host: other ranks save the copies.
        images = round(float(copied(totals)[1]))
        sent = self._clipped([copied(gradient) for gradient in means]) if self._group.rank == 0 else []
        exchange.lap("group")
        answer = exchange.push(sent, images)
        assign(variables, answer.values)
        return totals, means

    def _clipped(self, gradients: list[Any]) -> list[Any]:
        """The gradients, scaled down to the optimiser's largest norm."""
        largest = self._optimiser.global_clipnorm
        if largest is None:
            return gradients
        norm = float(np.sqrt(sum(float(np.sum(np.square(gradient))) for gradient in gradients)))
        return gradients if norm <= largest else [gradient * np.float32(largest / norm) for gradient in gradients]
