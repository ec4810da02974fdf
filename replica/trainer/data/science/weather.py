"""Global weather with boxes of all images (ewa), or of half of them (ewa-semi)."""

from pathlib import Path

from aiperf.wire.messages import TrainRequest
from replica.trainer.data.science.source import ScienceSource, Turn
from replica.trainer.data.science.transforms import Batch, Weather, cropped, mirrored, standardised
from workloads.data.arrays import Rows
from workloads.data.manifest import ScienceManifest
from workloads.data.sets import ScienceSet

CROP_STRIDE = 32
"""Number of columns between the places where a crop may begin (NERSC/climate-caffe)."""

UNLABELLED = 1
"""Remainder by two of the time steps in a file that have no labels in training."""


class WeatherSource(ScienceSource):
    """The source of inputs (N, H, W, 16), standardised, and targets (N, 16, 5).

    Rows of targets are ymin, xmin, ymax, xmax, class: boxes in pixels, classes from 0 to 3, unused
    rows -1. The last row begins with a number in [0, 1) drawn for the image, by which a task
    samples. In training, half of the images are mirrored in longitude.
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
        targets[: len(boxes)] = mirrored(boxes, image.shape[-1]) if mirror else boxes
        targets[len(boxes)] = -1.0
        targets[len(boxes), 0] = turn.rng(number).random()


class HalfLabelledSource(ScienceSource):
    """The source of inputs standardised image by image, and targets as those of `WeatherSource`.

    The last row begins with 1 if the image has labels, and with 0, after no boxes, if it has none:
    in training, every second time step of a file (Kurth et al. 2017, section III-B). Images wider
    than the set's are cropped: in training from a random multiple of 32 columns on, else in the
    middle. In training, half of the images are mirrored in longitude.
    """

    name = "ewa-semi"

    def _example(self, rows: Rows, number: int, turn: Turn, into: Batch) -> None:
        (mirror,) = turn.bits(number, 1)
        image, boxes = rows
        inputs, targets = into
        columns = inputs.shape[1]
        left = self._left(number, turn, image.shape[-1] - columns)
        standardised(image[..., left : left + columns], mirror, inputs)
        boxes = cropped(boxes, left, columns)
        # By the index in the file, not at random: the same images lack labels in every epoch and
        # run.
        labelled = turn.draws is None or self._readers["train"].place(number)[1] % 2 != UNLABELLED
        targets[:] = -1.0
        targets[len(boxes), 0] = labelled
        if labelled:
            targets[: len(boxes)] = mirrored(boxes, columns) if mirror else boxes

    @staticmethod
    def _left(number: int, turn: Turn, spare: int) -> int:
        """The first column of a crop that leaves out `spare` columns."""
        places = spare // CROP_STRIDE + 1
        place = places // 2 if turn.draws is None else int(turn.rng(number).integers(places))
        return place * CROP_STRIDE
