"""The embedded data set: scikit-learn's 1,797 handwritten digits, scaled up to 32 x 32 RGB.

NumPy only.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from aiperf.config.datasets import DIGITS, Dataset
from aiperf.config.fingerprints import image_entry, overall_fingerprint
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
        return _batches(self.train, order[share.group :: share.groups], batch_size, share.in_group)

    def validation_batches(self, batch_size: int, share: RankShare) -> Batches:
        """The rank's validation images once, in a fixed order."""
        return _batches(self.validation, np.arange(len(self.validation[0])), batch_size, share)


def bilinear(old: int, new: int) -> NDArray[np.float64]:
    """The matrix (new, old) that resizes an axis: centres at half-integers, edges repeated."""
    places = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    weights: NDArray[np.float64] = np.maximum(0, 1 - np.abs(places[:, None] - np.arange(old)))
    return weights


def fingerprint() -> str | None:
    """The fingerprint of the digits as installed (`aiperf.config.fingerprints`).

    An image's encoded bytes are its 8 x 8 grey values of 0 to 16, a byte each, row by row. Its
    label is the digit plus 1. None if the values are others.
    """
    digits = _digits()
    images, labels = digits.images.astype(np.uint8), digits.target + 1
    if not (images == digits.images).all():
        return None
    splits = [
        sorted(image_entry(images[index].tobytes(), int(labels[index])) for index in indices)
        for indices in _indices(digits.target)
    ]
    train, validation = (hashlib.sha256(b"".join(entries)).hexdigest() for entries in splits)
    return overall_fingerprint(train, validation)


@lru_cache(maxsize=1)
def _digits() -> Any:
    return load_digits()


def _indices(classes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The images that are trained, and those that are evaluated."""
    train, validation = train_test_split(
        np.arange(len(classes)), test_size=DIGITS.validation_images, random_state=SPLIT_SEED, stratify=classes
    )
    return train, validation


def _load() -> tuple[Split, Split]:
    digits = _digits()
    resize = bilinear(digits.images.shape[1], DIGITS.image_size)
    grey = (resize @ digits.images @ resize.T).astype(np.float32)
    images = np.repeat(grey[..., None], 3, axis=-1)
    labels = np.eye(DIGITS.classes, dtype=np.float32)[digits.target]
    chosen, held_out = _indices(digits.target)
    train, validation = images[chosen], images[held_out]
    mean, deviation = train.mean(), train.std()
    return ((train - mean) / deviation, labels[chosen]), ((validation - mean) / deviation, labels[held_out])


def _batches(split: Split, order: NDArray[np.intp], batch_size: int, share: RankShare) -> Batches:
    images, labels = split
    global_batch = batch_size * share.ranks
    for start in range(0, len(order), global_batch):
        together = order[start : start + global_batch]
        own = share.of(len(together))
        chosen = together[own.start : own.stop]
        if len(chosen):
            yield images[chosen], labels[chosen]
