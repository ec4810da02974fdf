"""What all sources of scientific data share: order, threads, batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from aiperf.config.dataset_manifest import Split
from aiperf.errors import AiperfError, DatasetError, TrialFailedError
from aiperf.host import this_host
from aiperf.wire.messages import TrainRequest
from replica.trainer.data.contract import RankShare
from replica.trainer.data.science.order import MIXED, Numbers, epoch_order
from replica.trainer.data.science.reader import Reader, examples_a_cache
from replica.trainer.data.science.transforms import Batch
from workloads.data.arrays import Rows
from workloads.data.formats import FORMATS
from workloads.data.layouts import layout_problems
from workloads.data.manifest import ScienceManifest, read_science_manifest
from workloads.data.sets import ScienceSet, find_set

PREFETCHED_BATCHES = 2
"""Besides the one that each thread works on."""

TRAIN, VALIDATION, SAMPLE = 0, 1, 2
"""Of random streams: purposes that must not share them."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One batch of an epoch."""

    key: tuple[int, ...]
    """Purpose, seed and epoch: random streams begin with it."""
    step: int
    draws: NDArray[np.uint8] | None
    """Random bytes, one for each example of the split; None: nothing is to be augmented."""

    def rng(self, *more: int) -> np.random.Generator:
        """A random stream of its own."""
        return np.random.default_rng((*self.key, *more))

    def bits(self, number: int, count: int) -> list[bool]:
        """Random bits of an example, up to eight; in validation all are false."""
        if self.draws is None:
            return [False] * count
        byte = int(self.draws[number])
        return [bool(byte >> bit & 1) for bit in range(count)]


Chance = tuple[tuple[int, ...], NDArray[np.uint8] | None]
"""Key and draws of all turns of an epoch."""


class ScienceSource(ABC):
    """Batches of a directory of scientific data; a `DataSource`.

    Threads read and convert whole batches side by side; they come in order.
    """

    name: ClassVar[str]
    parts: ClassVar[int] = 1
    """Examples that are made of one sample."""

    def __init__(self, folder: Path, found: ScienceSet, manifest: ScienceManifest, request: TrainRequest) -> None:
        self.dataset = found
        self._folder, self._manifest, self._seed = folder, manifest, request.seed
        self._threads = max(1, min(request.parallel_decode, this_host().usable_cpus()))
        self._form = FORMATS.load(manifest.format)
        self._readers = {split: Reader(folder, self._form, manifest.split(split).files) for split in _SPLITS}

    @classmethod
    def open(cls, request: TrainRequest, dataset: ScienceSet | None = None) -> Self:
        """Open the directory that a request names; `dataset` is its set if it is known.

        Raises DatasetError naming everything that is wrong with its description, or with the layout
        of its files.
        """
        found = dataset or find_set(cls.name, request.data_dir)
        folder = Path(str(request.data_dir))
        source = cls(folder, found, read_science_manifest(folder), request)
        source._look()
        return source

    def train_batches(self, batch_size: int, seed: int, epoch: int, share: RankShare) -> Iterator[Batch]:
        """The rank's training examples once, in an order that depends on seed and epoch."""
        files = self._manifest.train.files
        sizes = [file.images * self.parts for file in files]
        block = self._form.block * self.parts
        mixed = max(1, min(MIXED // block, examples_a_cache(self._sample_bytes(), self._form.block)))
        order = epoch_order(sizes, block, mixed, seed, epoch)
        own = share.of(len(order))
        key = (TRAIN, seed, epoch)
        draws = np.random.default_rng(key).integers(256, size=len(order), dtype=np.uint8)
        return self._batches("train", order[own.start : own.stop : own.step], batch_size, (key, draws))

    def validation_batches(self, batch_size: int, share: RankShare) -> Iterator[Batch]:
        """The rank's validation examples once, in the order of the files."""
        own = share.of(self.dataset.validation_images)
        numbers = np.arange(own.start, own.stop)
        return self._batches("validation", numbers, batch_size, ((VALIDATION, self._seed, 0), None))

    @property
    def sampled_images(self) -> int:
        """Training examples of the sample: as many as validation examples, or all if fewer."""
        return min(self.dataset.train_images, self.dataset.validation_images)

    def sampled_batches(self, batch_size: int, share: RankShare) -> Iterator[Batch]:
        """The rank's part of a sample of the training examples, without augmentation.

        The sample is the same in every epoch, spread evenly over the files in their order.
        """
        own = share.of(self.sampled_images)
        numbers = np.arange(own.start, own.stop) * self.dataset.train_images // self.sampled_images
        return self._batches("train", numbers, batch_size, ((SAMPLE, self._seed, 0), None))

    @abstractmethod
    def _example(self, rows: Rows, number: int, turn: Turn, into: Batch) -> None:
        """Write inputs and targets of one example, from its sample; all without the first axis."""

    def _finish(self, inputs: NDArray[np.float32], targets: NDArray[np.float32], turn: Turn) -> Batch:
        """The batch from all of its examples."""
        return inputs, targets

    def _batches(self, split: Split, numbers: Numbers, size: int, chance: Chance) -> Iterator[Batch]:
        """Batches in order, those that come next being made meanwhile."""
        waiting: deque[Future[Batch]] = deque()
        pool = ThreadPoolExecutor(self._threads)
        try:
            for step, start in enumerate(range(0, len(numbers), size)):
                turn = Turn(chance[0], step, chance[1])
                waiting.append(pool.submit(self._batch, split, numbers[start : start + size], turn))
                if len(waiting) >= self._threads + PREFETCHED_BATCHES:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except (AiperfError, OSError, ValueError) as error:
            reason = f"{self._folder}, {split}: {str(error)[:300]}"
            raise TrialFailedError("data", f"{reason}; find it with: aiperf dataset check {self._folder}") from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _batch(self, split: Split, numbers: Numbers, turn: Turn) -> Batch:
        reader, keep = self._readers[split], self._form.block * self.parts > 1
        inputs = np.empty((len(numbers), *self.dataset.input_shape), np.float32)
        targets = np.empty((len(numbers), *self.dataset.target_shape), np.float32)
        for place, number in enumerate(numbers.tolist()):
            rows = reader.sample(number // self.parts, keep)
            self._example(rows, number, turn, (inputs[place], targets[place]))
        return self._finish(inputs, targets, turn)

    def _sample_bytes(self) -> int:
        channels = len(self._manifest.channels)
        return channels * int(np.prod(self._manifest.grid)) * 4

    def _look(self) -> None:
        """Open every file once. Raises DatasetError with all problems."""
        problems = list(layout_problems(self._folder, self._manifest))
        if problems:
            rest = len(problems) - _MOST_SHOWN
            raise DatasetError(*problems[:_MOST_SHOWN], *([f"and {rest} more"] if rest > 0 else []))


_SPLITS: tuple[Split, ...] = ("train", "validation")
_MOST_SHOWN = 10
