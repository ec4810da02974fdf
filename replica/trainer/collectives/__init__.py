"""How the ranks of one training talk to one another: not at all for one rank, through Horovod for more."""

from __future__ import annotations

from replica.trainer.collectives.alone import AloneCollective
from replica.trainer.collectives.contract import Collective


def open_collective(ranks: int) -> Collective:
    """Join the other ranks. Raises TrialFailedError ("ranks") where they are not as many as they should be.

    Horovod is imported only where there is more than one rank.
    """
    if ranks == 1:
        return AloneCollective()
    from replica.trainer.tensorflow.horovod import HorovodCollective  # noqa: PLC0415

    return HorovodCollective(ranks)


__all__ = ["Collective", "open_collective"]
