"""Global weather with boxes (ewa)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

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

    def _example(self, rows: Rows, number: int, turn: Turn) -> Batch:
        (mirror,) = turn.bits(number, 1)
        image, boxes = rows
        draw = np.full((1, boxes.shape[-1]), -1.0, np.float32)
        draw[0, 0] = turn.rng(number).random()
        placed = self._inputs.boxes(boxes, image.shape[-1], mirror)
        return self._inputs.image(image, mirror), np.concatenate([placed, draw])
