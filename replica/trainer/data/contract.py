"""The contract of an input pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from aiperf.config.datasets import Dataset

Batches = Iterator[tuple[Any, Any]]
"""Pairs of images (N, H, W, 3) float32, normalised, and labels (N, classes) float32, one-hot.

The last batch may be smaller; no image is dropped and none is repeated."""


@dataclass(frozen=True, slots=True)
class Shard:
    """The part of an epoch that one rank takes."""

    rank: int = 0
    ranks: int = 1

    def share(self, images: int) -> range:
        """The contiguous share of so many images: shares differ by one image at most and cover all."""
        return range(images * self.rank // self.ranks, images * (self.rank + 1) // self.ranks)


class DataSource(Protocol):
    """Where training and validation images come from.

    All shards of an epoch together hold every image once. A rank has at most
    ceil(images / (ranks x batch size)) batches, so that all ranks can do as many steps.
    """

    @property
    def dataset(self) -> Dataset:
        """Sizes and classes; the batches of an epoch, over all shards, hold exactly so many images."""

    def train_batches(self, batch_size: int, seed: int, epoch: int, shard: Shard) -> Batches:
        """The shard's training images once, in an order that depends on seed and epoch."""

    def validation_batches(self, batch_size: int, shard: Shard) -> Batches:
        """The shard's validation images once, in a fixed order."""
