"""The embedded data set: scikit-learn's 1,797 handwritten digits, scaled up to 32 x 32 RGB.

NumPy only.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from aiperf.config.datasets import DIGITS, Dataset
from aiperf.messages import TrainRequest
from replica.trainer.data.contract import Batches, RankShare

SPLIT_SEED = 0
"""The split is part of the data set: the same for every run."""

Split = tuple[NDArray[np.float32], NDArray[np.float32]]


class DigitsSource:
    """Digits resized, grey to RGB, normalised by mean and deviation of the training images."""

    def __init__(self) -> None:
        self.train, self.validation = _load()

    @classmethod
    def open(cls, request: TrainRequest, dataset: Dataset) -> Self:
        """Load the digits, which need no directory."""
        return cls()

    @property
    def dataset(self) -> Dataset:
        """Sizes and classes of the digits."""
        return DIGITS

    def train_batches(self, batch_size: int, seed: int, epoch: int, share: RankShare) -> Batches:
        """The rank's part of every global batch; the order is shuffled over the whole set."""
        order = np.random.default_rng((seed, epoch)).permutation(len(self.train[0]))
        return _batches(self.train, order, batch_size, share)

    def validation_batches(self, batch_size: int, share: RankShare) -> Batches:
        """The rank's validation images once, in a fixed order."""
        return _batches(self.validation, np.arange(len(self.validation[0])), batch_size, share)


def bilinear(old: int, new: int) -> NDArray[np.float64]:
    """The matrix (new, old) that resizes an axis: centres at half-integers, edges repeated."""
    places = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    weights: NDArray[np.float64] = np.maximum(0, 1 - np.abs(places[:, None] - np.arange(old)))
    return weights


def _load() -> tuple[Split, Split]:
    digits: Any = load_digits()
    resize = bilinear(digits.images.shape[1], DIGITS.image_size)
    grey = (resize @ digits.images @ resize.T).astype(np.float32)
    images = np.repeat(grey[..., None], 3, axis=-1)
    labels = np.eye(DIGITS.classes, dtype=np.float32)[digits.target]
    train, validation, train_labels, validation_labels = train_test_split(
        images, labels, test_size=DIGITS.validation_images, random_state=SPLIT_SEED, stratify=digits.target
    )
    mean, deviation = train.mean(), train.std()
    return ((train - mean) / deviation, train_labels), ((validation - mean) / deviation, validation_labels)


def _batches(split: Split, order: NDArray[np.intp], batch_size: int, share: RankShare) -> Batches:
    images, labels = split
    global_batch = batch_size * share.ranks
    for start in range(0, len(order), global_batch):
        together = order[start : start + global_batch]
        own = share.of(len(together))
        chosen = together[own.start : own.stop]
        if len(chosen):
            yield images[chosen], labels[chosen]
