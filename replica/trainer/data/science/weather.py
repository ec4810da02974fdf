"""Global weather with boxes (ewa)."""

from __future__ import annotations

from pathlib import Path

from aiperf.messages import TrainRequest
from replica.trainer.data.science.source import ScienceSource, Turn
from replica.trainer.data.science.transforms import Batch, Weather
from workloads.data.arrays import Rows
from workloads.data.manifest import ScienceManifest
from workloads.data.sets import ScienceSet


class WeatherSource(ScienceSource):
    """Inputs (N, H, W, 16), standardised; targets (N, 16, 5): ymin, xmin, ymax, xmax, class.

    Boxes are in pixels, classes from 0 to 3, unused rows -1. The last row begins with a number in
    [0, 1) drawn for the image, from which a task chooses what trains. In training, half of the
    images are mirrored in longitude.
    """

    name = "ewa"

    def __init__(self, folder: Path, found: ScienceSet, manifest: ScienceManifest, request: TrainRequest) -> None:
        super().__init__(folder, found, manifest, request)
        self._inputs = Weather(manifest.channels)

    def _example(self, rows: Rows, number: int, turn: Turn, into: Batch) -> None:
        (mirror,) = turn.bits(number, 1)
        image, boxes = rows
        inputs, targets = into
        self._inputs.image(image, mirror, inputs)
        targets[: len(boxes)] = self._inputs.boxes(boxes, image.shape[-1], mirror)
        targets[len(boxes)] = -1.0
        targets[len(boxes), 0] = turn.rng(number).random()
