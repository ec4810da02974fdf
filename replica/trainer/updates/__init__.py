"""Updates by name: they apply the gradients of a training step."""

from typing import Any

from aiperf.registry import Registry
from aiperf.wire.messages import TrainRequest
from replica.trainer.collectives.contract import Collective
from replica.trainer.updates.contract import Update

UPDATES: Registry[type[Update]] = Registry(
    "update",
    {
        "local": "replica.trainer.updates.local:LocalUpdate",
        "synchronous": "replica.trainer.updates.synchronous:SynchronousUpdate",
        "hybrid": "replica.trainer.updates.hybrid:HybridUpdate",
    },
)


def choose_update(ranks: int, hybrid: bool = False) -> str:
    """The update's name: hybrid with parameter servers, local for one rank, else synchronous."""
    if hybrid:
        return "hybrid"
    return "local" if ranks == 1 else "synchronous"


def update_for(optimiser: Any, collective: Collective, request: TrainRequest, original: Any = None) -> Update:
    """Make the update of a training; `original` is Keras's optimiser if `optimiser` wraps it."""
    name = choose_update(collective.size, request.hybrid is not None)
    # Servers apply gradients in the place of the wrapper: the original has clipping and scaling.
    return UPDATES.load(name)(original if name == "hybrid" and original is not None else optimiser, collective)


__all__ = ["UPDATES", "Update", "choose_update", "update_for"]
