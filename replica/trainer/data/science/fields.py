"""Fields for generation, cut from the cubes of dark matter today (cos-fields, cos-slices)."""

import numpy as np
from numpy.typing import NDArray

from replica.trainer.data.science.source import ScienceSource, Turn
from replica.trainer.data.science.transforms import Batch, field
from workloads.data.arrays import Rows
from workloads.data.sets import CUBES_A_CUBE, NOISE, SLICES_A_CUBE

FLIP_PROBABILITY = 0.01
"""Probability that the labels of a whole batch are flipped (cosmoGAN, Mustafa et al. 2019)."""


class FieldSource(ScienceSource):
    """The source of inputs (N, n, n, n, 1) in -1 to 1: the octants of cubes of (2 n)^3.

    Targets (N, 65): 64 numbers z ~ N(0, 1) of which a field is generated, and 1 if the labels of
    this batch are to be exchanged. In validation, z depends on the seed alone, and the number is 0.
    """

    name = "cos-fields"
    parts = CUBES_A_CUBE

    def _example(self, rows: Rows, number: int, turn: Turn, into: Batch) -> None:
        inputs, targets = into
        inputs[:] = field(self._cut(rows[0][..., 0], number % self.parts), self._manifest.channels[0].mean)
        targets[:NOISE], targets[NOISE] = turn.rng(0, number).standard_normal(NOISE), 0.0

    def _finish(self, inputs: NDArray[np.float32], targets: NDArray[np.float32], turn: Turn) -> Batch:
        # Drawn for the step, so that all examples of the batch are flipped together.
        if turn.draws is not None and turn.rng(1, turn.step).random() < FLIP_PROBABILITY:
            targets[:, NOISE] = 1.0
        return inputs, targets

    @staticmethod
    def _cut(counts: NDArray[np.int16], part: int) -> NDArray[np.int16]:
        """Cut out one of the eight octants."""
        half = [size // 2 for size in counts.shape]
        # The bits of the number say which half of each axis it is.
        x, y, z = (slice(size * (part >> axis & 1), size * (part >> axis & 1) + size) for axis, size in enumerate(half))
        return counts[x, y, z]


class SliceSource(FieldSource):
    """The `FieldSource` of inputs (N, n, n, 1): planes of cubes of n^3, an eighth apart."""

    name = "cos-slices"
    parts = SLICES_A_CUBE

    @staticmethod
    def _cut(counts: NDArray[np.int16], part: int) -> NDArray[np.int16]:
        plane: NDArray[np.int16] = counts[len(counts) * part // SLICES_A_CUBE]
        return plane
