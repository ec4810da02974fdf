"""The contract of an input pipeline.

Batches are NumPy arrays or tensors of the framework that trains. Training steps take both, and
tensors pass through untouched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self

from aiperf.messages import TrainRequest

Batches = Iterator[tuple[Any, Any]]
"""Pairs of inputs and targets, float32: images (N, H, W, 3), normalised, and labels (N, classes).

Labels are one-hot. Scientific data have the shapes that their sources state. The last batch may be
smaller; no image is dropped and none is repeated."""


@dataclass(frozen=True, slots=True)
class RankShare:
    """The part of an epoch that one rank takes."""

    rank: int = 0
    ranks: int = 1

    def of(self, images: int) -> range:
        """The contiguous share of this many images.

        Shares differ by one image at most and cover all.
        """
        return range(images * self.rank // self.ranks, images * (self.rank + 1) // self.ranks)


class DataSource(Protocol):
    """A source of training and validation images.

    The shares of all ranks together hold every image of an epoch once. A rank has at most
    ceil(images / (ranks x batch size)) batches, so that all ranks can do as many steps.
    """

    @classmethod
    def open(cls, request: TrainRequest, dataset: Any) -> Self:
        """Open the files that a request names; `dataset` is the set that the source reads.

        Raises DatasetError if they are not what they should be.
        """

    @property
    def dataset(self) -> Any:
        """A `Dataset` of images, or a `ScienceSet`.

        The batches of all ranks hold exactly this many images.
        """

    def train_batches(self, batch_size: int, seed: int, epoch: int, share: RankShare) -> Batches:
        """The rank's training images once, in an order that depends on seed and epoch."""

    def validation_batches(self, batch_size: int, share: RankShare) -> Batches:
        """The rank's validation images once, in a fixed order."""
