"""The part that all sources of scientific data share: order, open files, threads, batches."""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from aiperf.config.dataset_manifest import Split
from aiperf.errors import AiperfError, DatasetError
from aiperf.host import this_host
from aiperf.storage.patience import with_patience
from aiperf.wire.messages import TrainRequest
from replica.trainer.data.contract import RankShare
from replica.trainer.data.science.transforms import Batch
from replica.trainer.failures import unreadable
from workloads.data.arrays import Rows
from workloads.data.formats import FORMATS, Format, OpenFile
from workloads.data.manifest import ScienceFile, ScienceManifest, layout_problems, read_science_manifest
from workloads.data.sets import ScienceSet, find_set

# The order of an epoch: random, but neighbours that are packed together stay near each other.

MIXED = 512
"""Least number of examples whose blocks are shuffled together."""

Numbers = NDArray[np.int64]


def epoch_order(sizes: Sequence[int], block: int, mixed: int, seed: int, epoch: int) -> Numbers:
    """Draw an order of all examples of files of these sizes.

    Blocks of neighbours, none over the end of a file, come in random order; in each run of `mixed`
    blocks, all examples are shuffled. With blocks of one it is a random order of all.
    """
    rng = np.random.default_rng((seed, epoch))
    total = sum(sizes)
    # Each sample is a chunk of its own: any order reads no more than any other.
    if block == 1:
        return rng.permutation(total)
    starts, first = [], 0
    for size in sizes:
        starts += [(start, min(start + block, first + size)) for start in range(first, first + size, block)]
        first += size
    shuffled = [starts[number] for number in rng.permutation(len(starts))]
    runs = [
        np.concatenate([np.arange(*ends) for ends in shuffled[start : start + mixed]])
        for start in range(0, len(shuffled), mixed)
    ]
    return np.concatenate([rng.permutation(run) for run in runs]).astype(np.int64)


# Samples of a split by their numbers, out of files that stay open.

CACHE_BYTES = 256 << 20
"""Most bytes of blocks that were read and may be asked for again."""

MOST_OPEN = 64
"""Most files that are open at the same time."""


class Reader:
    """The samples of one split. Threads may share it."""

    def __init__(self, folder: Path, form: Format, files: Sequence[ScienceFile]) -> None:
        self._folder, self._form, self._files = folder, form, files
        self._ends = list(accumulate(file.images for file in files))
        self._open: OrderedDict[int, OpenFile] = OrderedDict()
        self._blocks: OrderedDict[tuple[int, int], Rows] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def sample(self, number: int, keep: bool) -> Rows:
        """Read one sample, without the first axis.

        With `keep`, the block that it is in stays in memory for its neighbours. Raises ValueError
        naming file and sample, DatasetError, or OSError.
        """
        file, index = self.place(number)
        opened = self._opened(file)
        try:
            if not keep:
                inputs, targets = opened.read(index, index + 1)
                return inputs[0], targets[0]
            start = index - index % self._form.block
            inputs, targets = self._block(opened, file, start)
        except ValueError as error:
            raise ValueError(f"{self._files[file].name}: {error}") from None
        except OSError:
            with self._lock:  # a stale handle stays stale: it is opened again if somebody tries again
                self._open.pop(file, None)
            raise
        return inputs[index - start], targets[index - start]

    def place(self, number: int) -> tuple[int, int]:
        """The file that a sample is in, counted from 0, and its index there."""
        file = bisect_right(self._ends, number)
        return file, number - (self._ends[file - 1] if file else 0)

    def _opened(self, number: int) -> OpenFile:
        with self._lock:
            opened = self._open.get(number)
            if opened is None:
                file = self._files[number]
                opened = self._form.open(self._folder / file.name)
                if opened.layout.samples != file.images:
                    raise DatasetError(
                        f"{self._folder / file.name}: holds {opened.layout.samples} samples, not {file.images}"
                    )
                self._open[number] = opened
                # Another thread may still read an old file: the last reference closes it.
                if len(self._open) > MOST_OPEN:
                    self._open.popitem(last=False)
            self._open.move_to_end(number)
            return opened

    def _block(self, opened: OpenFile, file: int, start: int) -> Rows:
        with self._lock:
            rows = self._blocks.get((file, start))
            if rows is None:
                # Under the lock: threads that want samples of one block wait for a single reading
                # of it.
                rows = opened.read(start, min(start + self._form.block, opened.layout.samples))
                self._blocks[file, start] = rows
                self._bytes += rows[0].nbytes
                while self._bytes > CACHE_BYTES and len(self._blocks) > 1:
                    self._bytes -= self._blocks.popitem(last=False)[1][0].nbytes
            self._blocks.move_to_end((file, start))
            return rows


def examples_a_cache(sample_bytes: int, block: int) -> int:
    """The number of blocks that half of the cache holds, at least one."""
    return max(1, CACHE_BYTES // 2 // max(1, sample_bytes * block))


PREFETCHED_BATCHES = 2
"""Number of batches that wait, in addition to the one that each thread works on."""

TRAIN, VALIDATION, SAMPLE, TEST = range(4)
"""Purposes of random streams, which must not share one."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One batch of an epoch."""

    key: tuple[int, ...]
    """Purpose, seed and epoch, with which the seeds of random streams begin."""
    step: int
    draws: NDArray[np.uint8] | None
    """Random bytes, one for each example of the split; None: nothing is to be augmented."""

    def rng(self, *more: int) -> np.random.Generator:
        """Make a random stream of its own."""
        return np.random.default_rng((*self.key, *more))

    def bits(self, number: int, count: int) -> list[bool]:
        """Give random bits of an example, up to eight; in validation all are false."""
        if self.draws is None:
            return [False] * count
        byte = int(self.draws[number])
        return [bool(byte >> bit & 1) for bit in range(count)]


Chance = tuple[tuple[int, ...], NDArray[np.uint8] | None]
"""Key and draws of all turns of an epoch."""


class ScienceSource(ABC):
    """The batches of a directory of scientific data (`DataSource`).

    Threads read and convert whole batches in parallel; the batches come in order.
    """

    name: ClassVar[str]
    parts: ClassVar[int] = 1
    """Number of examples that are made of one sample."""

    input_type = np.float32

    def __init__(self, folder: Path, found: ScienceSet, manifest: ScienceManifest, request: TrainRequest) -> None:
        self.dataset = found
        self._folder, self._manifest, self._seed = folder, manifest, request.seed
        self._threads = max(1, min(request.parallel_decode, this_host().usable_cpus()))
        self._form = FORMATS.load(manifest.format)
        self._readers = {split: Reader(folder, self._form, manifest.split(split).files) for split in manifest.splits}

    @classmethod
    def open(cls, request: TrainRequest, dataset: ScienceSet | None = None) -> Self:
        """Open the directory that a request names; `dataset` is its set if it is known.

        Raises DatasetError naming all problems of its description, or of the layout of its files.
        """
        found = dataset or find_set(cls.name, request.data_dir)
        folder = Path(str(request.data_dir))
        source = cls(folder, found, read_science_manifest(folder), request)
        source._look()
        return source

    def train_batches(self, batch_size: int, seed: int, epoch: int, share: RankShare) -> Iterator[Batch]:
        """Yield the rank's training examples once, in an order that depends on seed and epoch."""
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
        """Yield the rank's validation examples once, in the order of the files."""
        own = share.of(self.dataset.validation_images)
        numbers = np.arange(own.start, own.stop)
        return self._batches("validation", numbers, batch_size, ((VALIDATION, self._seed, 0), None))

    def test_batches(self, batch_size: int, share: RankShare) -> Iterator[Batch]:
        """Yield the rank's test examples once, in the order of the files."""
        own = share.of(self.dataset.test_images)
        numbers = np.arange(own.start, own.stop)
        return self._batches("test", numbers, batch_size, ((TEST, self._seed, 0), None))

    def known_batches(self, batch_size: int, seed: int, share: RankShare) -> Iterator[Batch]:
        """Yield the rank's training examples once, in a random order and without augmentation."""
        order = np.random.default_rng((SAMPLE, seed)).permutation(self.dataset.train_images)
        own = share.of(len(order))
        return self._batches("train", order[own.start : own.stop : own.step], batch_size, ((SAMPLE, seed, 0), None))

    @property
    def sampled_images(self) -> int:
        """Number of training examples of the sample: that of validation, or all if fewer."""
        return min(self.dataset.train_images, self.dataset.validation_images)

    def sampled_batches(self, batch_size: int, share: RankShare) -> Iterator[Batch]:
        """Yield the rank's part of a sample of the training examples, without augmentation.

        The sample is the same in every epoch, spread evenly over the files in their order.
        """
        own = share.of(self.sampled_images)
        numbers = np.arange(own.start, own.stop) * self.dataset.train_images // self.sampled_images
        return self._batches("train", numbers, batch_size, ((SAMPLE, self._seed, 0), None))

    @abstractmethod
    def _example(self, rows: Rows, number: int, turn: Turn, into: Batch) -> None:
        """Write inputs and targets of one example, from its sample; all without the first axis."""

    def _finish(self, inputs: NDArray[np.float32], targets: NDArray[np.float32], turn: Turn) -> Batch:
        """Make the batch of all of its examples."""
        return inputs, targets

    def _batches(self, split: Split, numbers: Numbers, size: int, chance: Chance) -> Iterator[Batch]:
        """Yield the batches in order, and make those that come next meanwhile."""
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
            raise unreadable(error, self._folder, split) from None
        finally:
            # Who takes the batches may leave before their end: nobody waits for those that are
            # left.
            pool.shutdown(wait=False, cancel_futures=True)

    def _batch(self, split: Split, numbers: Numbers, turn: Turn) -> Batch:
        reader, keep = self._readers[split], self._form.block * self.parts > 1
        inputs = np.empty((len(numbers), *self.dataset.input_shape), np.float32)
        targets = np.empty((len(numbers), *self.dataset.target_shape), np.float32)
        for place, number in enumerate(numbers.tolist()):
            rows = with_patience(partial(reader.sample, number // self.parts, keep), self._folder)
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


_MOST_SHOWN = 10
