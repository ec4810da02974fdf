"""ImageNet's usual form: TFRecords of `image/encoded` and `image/class/label`, from 1."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from aiperf.config.dataset_manifest import FileEntry, Split
from replica.trainer.data.contract import Batches, RankShare
from replica.trainer.data.directories import Shards
from replica.trainer.data.images import checked, train_dataset, validation_dataset
from replica.trainer.data.portable.recipe import BLOCK, OPEN_SHARDS
from workloads.data.records import pieces

READ_BUFFER_BYTES = 8 << 20

FEATURES = {
    "image/encoded": tf.io.FixedLenFeature((), tf.string),
    "image/class/label": tf.io.FixedLenFeature((), tf.int64),
}


class TFRecordSource(Shards):
    """The source of an equal share of each epoch for each rank, with a new order of the shards."""

    def train_batches(self, batch_size: int, seed: int, epoch: int, share: RankShare) -> Batches:
        """Yield the rank's images once: shards in random order, interleaved, and shuffled."""
        examples = self._examples("train", self._train_files(seed, epoch), share, OPEN_SHARDS)
        seeds = (seed, epoch * share.all_ranks + share.number)
        batches = train_dataset(examples, self.dataset, self._request, seeds)
        return checked(batches, self._folder, "train")

    def validation_batches(self, batch_size: int, share: RankShare) -> Batches:
        """Yield the rank's validation images once, in the order of the files."""
        examples = self._examples("validation", self._manifest.validation.files, share, 1)
        batches = validation_dataset(examples, self.dataset, self._request)
        return checked(batches, self._folder, "validation")

    def known_batches(self, batch_size: int, seed: int, share: RankShare) -> Batches:
        """Yield the rank's training images once, the shards in random order, and interleaved."""
        examples = self._examples("train", self._train_files(seed, 0), share, OPEN_SHARDS)
        batches = validation_dataset(examples, self.dataset, self._request)
        return checked(batches, self._folder, "train")

    def _examples(self, split: Split, files: Sequence[FileEntry], share: RankShare, cycle: int) -> Any:
        own = list(pieces(files, share.contiguous(self._manifest.split(split).images)))
        listed = tf.data.Dataset.from_tensor_slices(
            (
                tf.constant([str(self._folder / piece.file) for piece in own], tf.string),
                tf.constant([piece.skip for piece in own], tf.int64),
                tf.constant([piece.take for piece in own], tf.int64),
            )
        )
        # Deterministic: an epoch is a function of its seed, whatever the order in which reads
        # return.
        records = listed.interleave(
            lambda file, skip, take: tf.data.TFRecordDataset(file, buffer_size=READ_BUFFER_BYTES).skip(skip).take(take),
            cycle_length=cycle,
            block_length=BLOCK,
            num_parallel_calls=cycle,
            deterministic=True,
        )
        return records.map(_parse, num_parallel_calls=2)


def _parse(record: Any) -> tuple[Any, Any]:
    example = tf.io.parse_single_example(record, FEATURES)
    return example["image/encoded"], example["image/class/label"] - 1
