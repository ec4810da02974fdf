"""Updates by name: who applies the gradients of a training step."""

from __future__ import annotations

from aiperf.registry import Registry
from replica.trainer.updates.contract import Update

UPDATES: Registry[type[Update]] = Registry(
    "update",
    {
        "local": "replica.trainer.updates.local:LocalUpdate",
        "synchronous": "replica.trainer.updates.synchronous:SynchronousUpdate",
    },
)


def choose_update(ranks: int) -> str:
    """The update's name: local for one rank, else synchronous."""
    return "local" if ranks == 1 else "synchronous"


__all__ = ["UPDATES", "Update", "choose_update"]
