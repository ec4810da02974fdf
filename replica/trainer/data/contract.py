"""The contract of an input pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from aiperf.datasets import Dataset

Batches = Iterator[tuple[Any, Any]]
"""Pairs of images (N, H, W, 3) float32, normalised, and labels (N, classes) float32, one-hot.

The last batch of an epoch may be smaller; no image is dropped and none is repeated."""


class DataSource(Protocol):
    """Where training and validation images come from."""

    @property
    def dataset(self) -> Dataset:
        """Sizes and classes; the batches of an epoch hold exactly so many images."""

    def train_batches(self, batch_size: int, seed: int, epoch: int) -> Batches:
        """All training images once, in an order that depends on seed and epoch."""

    def validation_batches(self, batch_size: int) -> Batches:
        """All validation images once, in a fixed order."""
