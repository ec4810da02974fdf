"""The embedded data set: scikit-learn's 1,797 handwritten digits, scaled up to 32 x 32 RGB.

NumPy only: scikit-learn itself, which has the file, takes more than a second to import.
"""

import hashlib
import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from aiperf.config.datasets import DIGITS, Dataset
from aiperf.config.fingerprints import image_entry, overall_fingerprint
from aiperf.wire.messages import TrainRequest
from replica.trainer.data.contract import Batches, RankShare

SPLIT = Path(__file__).with_name("digits_split.json")
"""File of the numbers of the images that are trained, and of those that are evaluated, in order.

The split is part of the data set: the same for every run. It is that of scikit-learn's
`train_test_split`, stratified, with the seed 0.
"""

SIDE = 8
"""Number of pixels of a side."""

Split = tuple[NDArray[np.float32], NDArray[np.float32]]


class Digits(NamedTuple):
    """The digits as scikit-learn's file has them."""

    images: NDArray[np.float64]
    """Grey values of 0 to 16 (1797, 8, 8)."""
    classes: NDArray[np.int64]
    """Digit of each image (1797)."""


class DigitsSource:
    """The digits resized, grey to RGB, normalised by mean and deviation of the training images."""

    input_type = np.float32

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
        """Yield the rank's part of every global batch; the order is shuffled over the whole set."""
        order = np.random.default_rng((seed, epoch)).permutation(len(self.train[0]))
        return _batches(self.train, order[share.group :: share.groups], batch_size, share.in_group)

    def validation_batches(self, batch_size: int, share: RankShare) -> Batches:
        """Yield the rank's validation images once, in a fixed order."""
        return _batches(self.validation, np.arange(len(self.validation[0])), batch_size, share)

    def known_batches(self, batch_size: int, seed: int, share: RankShare) -> Batches:
        """Yield the rank's training images once, as in an epoch 0."""
        return self.train_batches(batch_size, seed, 0, share)


def bilinear(old: int, new: int) -> NDArray[np.float64]:
    """The matrix (new, old) that resizes an axis: centres at half-integers, edges repeated."""
    places = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    weights: NDArray[np.float64] = np.maximum(0, 1 - np.abs(places[:, None] - np.arange(old)))
    return weights


def fingerprint() -> str | None:
    """Compute the fingerprint of the installed digits (`aiperf.config.fingerprints`).

    An image's encoded bytes are its 8 x 8 grey values of 0 to 16, a byte each, row by row. Its
    label is the digit plus 1. None if the values are not such bytes.
    """
    digits = read_digits()
    images, labels = digits.images.astype(np.uint8), digits.classes + 1
    if not (images == digits.images).all():
        return None
    splits = [
        sorted(image_entry(images[index].tobytes(), int(labels[index])) for index in indices) for indices in split()
    ]
    train, validation = (hashlib.sha256(b"".join(entries)).hexdigest() for entries in splits)
    return overall_fingerprint(train, validation)


@cache
def read_digits() -> Digits:
    """Read the digits from the file that scikit-learn brings along."""
    package = find_spec("sklearn")
    file = Path(package.origin).parent / "datasets/data/digits.csv.gz" if package and package.origin else None
    if file is None or not file.exists():  # another version may have it elsewhere
        from sklearn.datasets import load_digits  # noqa: PLC0415  (takes a second to load)

        known = load_digits()
        return Digits(known.images, known.target)
    table = np.loadtxt(file, delimiter=",")
    return Digits(table[:, :-1].reshape(-1, SIDE, SIDE), table[:, -1].astype(np.int64))


@cache
def split() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Read the numbers of the images that are trained, and of those that are evaluated."""
    parts = json.loads(SPLIT.read_text())
    return np.array(parts["train"]), np.array(parts["validation"])


def _load() -> tuple[Split, Split]:
    digits = read_digits()
    resize = bilinear(SIDE, DIGITS.image_size)
    grey = (resize @ digits.images @ resize.T).astype(np.float32)
    images = np.repeat(grey[..., None], 3, axis=-1)
    labels = np.eye(DIGITS.classes, dtype=np.float32)[digits.classes]
    chosen, held_out = split()
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
