"""The contract of an input pipeline.

Batches are NumPy arrays or tensors of the framework that trains. Training steps take both, and
tensors pass through untouched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from aiperf.wire.messages import TrainRequest
from workloads.contract import TrainedWorkload

Batches = Iterator[tuple[Any, Any]]
"""Iterator of pairs of inputs and targets: images (N, H, W, 3), and labels.

Images are normalised, float32, or pixels, uint8, which the steps normalise on the device
(`replica.trainer.data.portable.recipe`): a quarter of the bytes to move. Labels are one-hot,
(N, classes), float32. Scientific data are float32, in the shapes that their sources state. The last
batch may be smaller; no image is dropped and none is repeated."""


@dataclass(frozen=True, slots=True)
class RankShare:
    """The part of an epoch that one rank takes; in a hybrid training, one rank of one group."""

    rank: int = 0
    """Number of the rank in its group."""
    ranks: int = 1
    group: int = 0
    groups: int = 1

    @property
    def number(self) -> int:
        """Number of this rank among those of all groups."""
        return self.group * self.ranks + self.rank

    @property
    def all_ranks(self) -> int:
        """Number of ranks of all groups."""
        return self.groups * self.ranks

    @property
    def in_group(self) -> RankShare:
        """The share of this rank if its group has the epoch to itself."""
        return RankShare(self.rank, self.ranks)

    def of_group(self, images: int) -> range:
        """The group's part of this many images: image i goes to group i mod G."""
        return range(self.group, images, self.groups)

    def of(self, images: int) -> range:
        """The rank's part of its group's images, contiguous among them.

        Shares differ by one image at most in a group, and cover all.
        """
        return self._cut(self.of_group(images))

    def contiguous(self, images: int) -> range:
        """As many images as `of` gives, in a row: for files that are read in order."""
        before = self.group * (images // self.groups) + min(self.group, images % self.groups)
        return self._cut(range(before, before + len(self.of_group(images))))

    def _cut(self, own: range) -> range:
        count = len(own)
        return own[count * self.rank // self.ranks : count * (self.rank + 1) // self.ranks]


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
    def input_type(self) -> type[np.generic]:
        """The type of the inputs: `np.float32` or `np.uint8`."""

    @property
    def dataset(self) -> Any:
        """The data set: a `Dataset` of images, or a `ScienceSet`.

        The batches of all ranks hold exactly this many images.
        """

    def train_batches(self, batch_size: int, seed: int, epoch: int, share: RankShare) -> Batches:
        """Yield the rank's training images once, in an order that depends on seed and epoch."""

    def validation_batches(self, batch_size: int, share: RankShare) -> Batches:
        """Yield the rank's validation images once, in a fixed order."""

    def known_batches(self, batch_size: int, seed: int, share: RankShare) -> Batches:
        """Yield the rank's training images once, prepared as validation images are.

        Their order depends on the seed. An audit compares their accuracy with that of validation.
        """


def blank_batch(source: DataSource, workload: TrainedWorkload, examples: int) -> tuple[Any, Any]:
    """Make a batch as the source makes them, of this many blank examples with valid labels."""
    inputs, targets = workload.blank(examples, source.dataset)
    return inputs.astype(source.input_type), targets
