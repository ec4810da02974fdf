"""Cubes of dark matter (cos)."""

from pathlib import Path

from aiperf.wire.messages import TrainRequest
from replica.trainer.data.science.source import ScienceSource, Turn
from replica.trainer.data.science.transforms import Batch, Cubes
from workloads.data.arrays import Rows
from workloads.data.manifest import ScienceManifest
from workloads.data.sets import ScienceSet


class CubeSource(ScienceSource):
    """The source of inputs (N, n, n, n, 4), standardised log(1 + x), and targets (N, 4) in -1 to 1.

    In training, each axis of each cube is turned round half of the time: the universe has no
    preferred direction.
    """

    name = "cos"

    def __init__(self, folder: Path, found: ScienceSet, manifest: ScienceManifest, request: TrainRequest) -> None:
        super().__init__(folder, found, manifest, request)
        self._inputs = Cubes(manifest.channels)

    def _example(self, rows: Rows, number: int, turn: Turn, into: Batch) -> None:
        self._inputs(rows[0], turn.bits(number, 3), into[0])
        into[1][:] = rows[1]
