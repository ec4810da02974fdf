"""Collectives by name: how the ranks of one training exchange data."""

from collections.abc import Callable

from aiperf.registry import Registry
from replica.trainer.collectives.contract import Collective

COLLECTIVES: Registry[Callable[[int], Collective]] = Registry(
    "collective",
    {
        "alone": "replica.trainer.collectives.alone:AloneCollective",
        "horovod": "replica.trainer.frameworks.tensorflow.horovod:HorovodCollective",
        "jax": "replica.trainer.frameworks.jax.collective:JaxCollective",
        "torch": "replica.trainer.frameworks.torch.collective:TorchCollective",
    },
)
"""Makers of collectives from a number of ranks.

Each raises TrialFailedError ("ranks") if it finds another number.
"""

__all__ = ["COLLECTIVES", "Collective"]
