"""Synthetic images in the host's memory. Keras takes the framework that is loaded before it."""

from typing import Any

import numpy as np

from replica.trainer.data.synthetic import SyntheticSource


class HostPixels(SyntheticSource):
    """One batch of pixels for each split again and again, as a pipeline hands them over."""

    input_type = np.uint8

    def _noise(self, batch_size: int, seed: int) -> Any:
        side = self.dataset.image_size
        return np.random.default_rng(seed).integers(0, 256, (batch_size, side, side, 3), np.uint8)

    def _one_hot(self, classes: Any) -> Any:
        return np.eye(self.dataset.classes, dtype=np.float32)[classes]
