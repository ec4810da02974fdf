"""Images of collisions (hep)."""

from replica.trainer.data.science.source import ScienceSource, Turn
from replica.trainer.data.science.transforms import Batch, collisions
from workloads.data.arrays import Rows


class CollisionSource(ScienceSource):
    """The source of inputs (N, S, S, 3), half of logarithms, and targets (N, 3): one-hot class,
    and `passSR`."""

    name = "hep"

    def _example(self, rows: Rows, number: int, turn: Turn, into: Batch) -> None:
        collisions(rows, into)
