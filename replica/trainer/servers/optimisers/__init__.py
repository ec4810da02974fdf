"""Optimisers of parameter servers by name."""

from aiperf.registry import Registry
from replica.trainer.servers.optimisers.contract import MakeOptimiser, ServerOptimiser

SERVER_OPTIMISERS: Registry[MakeOptimiser] = Registry(
    "optimiser of parameter servers",
    {
        "sgd": "replica.trainer.servers.optimisers.sgd:Sgd",
        "adam": "replica.trainer.servers.optimisers.adam:Adam",
    },
)
"""Makers of optimisers."""

__all__ = ["SERVER_OPTIMISERS", "ServerOptimiser"]
