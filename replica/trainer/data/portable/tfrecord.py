"""TFRecords of JPEGs, read without TensorFlow."""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from aiperf.config.dataset_manifest import DatasetManifest, FileEntry, Split
from aiperf.config.datasets import Dataset
from aiperf.wire.messages import TrainRequest
from replica.trainer.data.contract import Batches, RankShare
from replica.trainer.data.directories import Shards
from replica.trainer.data.portable.decoders import open_decoders
from replica.trainer.data.portable.recipe import BLOCK, OPEN_SHARDS
from replica.trainer.data.portable.stream import batches_of, checked, train_batches
from workloads.data.records import pieces, read_images


class PortableTFRecordSource(Shards):
    """The source of an equal share of each epoch for each rank, with a new order of the shards."""

    input_type = np.uint8

    def __init__(self, dataset: Dataset, folder: Path, manifest: DatasetManifest, request: TrainRequest) -> None:
        super().__init__(dataset, folder, manifest, request)
        self._decoding = open_decoders(request)

    def train_batches(self, batch_size: int, seed: int, epoch: int, share: RankShare) -> Batches:
        """Yield the rank's images once: shards in random order, in turns, shuffled in a buffer."""
        examples = self._examples("train", self._train_files(seed, epoch), share, OPEN_SHARDS)
        key = (seed, epoch, share.number, share.all_ranks)
        batches = train_batches(examples, self.dataset, self._request, self._decoding, key)
        return checked(batches, self._folder, "train")

    def validation_batches(self, batch_size: int, share: RankShare) -> Batches:
        """Yield the rank's validation images once, in the order of the files."""
        examples = self._examples("validation", self._manifest.validation.files, share, 1)
        return checked(batches_of(examples, self.dataset, self._request, self._decoding), self._folder, "validation")

    def known_batches(self, batch_size: int, seed: int, share: RankShare) -> Batches:
        """Yield the rank's training images once: shards in random order, in turns."""
        examples = self._examples("train", self._train_files(seed, 0), share, OPEN_SHARDS)
        return checked(batches_of(examples, self.dataset, self._request, self._decoding), self._folder, "train")

    def _examples(
        self, split: Split, files: Sequence[FileEntry], share: RankShare, together: int
    ) -> Iterator[tuple[bytes, int]]:
        """Yield the images of the rank's share; blocks of `together` shards take turns.

        Each shard is read in order, since NFS reads ahead; the turns mix what a buffer shuffles.
        """
        own = pieces(files, share.contiguous(self._manifest.split(split).images))
        shards = (read_images(self._folder / piece.file, piece.skip, piece.take) for piece in own)
        turns = deque(islice(shards, together))
        while turns:
            shard = turns.popleft()
            block = list(islice(shard, BLOCK))
            yield from ((encoded, label - 1) for label, encoded in block)
            # A block that is not full is the last one of its shard.
            if len(block) == BLOCK:
                turns.append(shard)
            else:
                turns.extend(islice(shards, 1))
