"""A few JPEGs again and again. Keras takes the framework that is loaded before it."""

import tempfile
from itertools import cycle, islice
from pathlib import Path

from aiperf.config.dataset_manifest import read_dataset_manifest
from aiperf.config.datasets import Dataset
from benchmarks.training import synthesize
from benchmarks.trainings.host_pixels import HostPixels
from benchmarks.trainings.timing import request_for
from replica.trainer.data.contract import Batches, RankShare
from replica.trainer.data.portable.decoders import open_decoders
from replica.trainer.data.portable.stream import train_batches
from workloads.data.records import read_images

JPEGS = 1024


class Jpegs(HostPixels):
    """Training images are decoded as the trainer does it, from JPEGs in memory."""

    def __init__(self, dataset: Dataset) -> None:
        super().__init__(dataset)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "data"
            synthesize(folder, min(JPEGS, dataset.train_images))
            shards = read_dataset_manifest(folder).train.files
            pairs = [pair for shard in shards for pair in read_images(folder / shard.name, 0, shard.images)]
        self._encoded = [(image, label - 1) for label, image in pairs]

    def train_batches(self, batch_size: int, seed: int, epoch: int, share: RankShare) -> Batches:
        """Yield as many images as the data set has."""
        request = request_for("float32", batch_size)  # nothing here depends on the precision
        examples = islice(cycle(self._encoded), self.dataset.train_images)
        return train_batches(examples, self.dataset, request, open_decoders(request), (seed, epoch))
