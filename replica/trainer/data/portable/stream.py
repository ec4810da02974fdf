"""Encoded images as a stream: shuffled in a buffer, decoded in parallel, in batches."""

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aiperf.config.dataset_manifest import Split
from aiperf.config.datasets import Dataset
from aiperf.wire.messages import TrainRequest
from replica.trainer.data.contract import Batches
from replica.trainer.data.portable.crops import Crops, Pixels
from replica.trainer.data.portable.decoders import Decoding
from replica.trainer.failures import unreadable

Examples = Iterable[tuple[bytes, int]]
"""Pairs of encoded image and label (from 0)."""

PREFETCHED_BATCHES = 2


def shuffled(examples: Examples, buffer: int, rng: np.random.Generator) -> Iterator[tuple[bytes, int]]:
    """Yield each example once, drawn at random from a buffer that is kept full."""
    source = iter(examples)
    held = list(islice(source, buffer))
    for example in source:
        place = int(rng.integers(len(held)))
        yield held[place]
        held[place] = example
    for place in rng.permutation(len(held)):
        yield held[place]


def train_batches(
    examples: Examples, dataset: Dataset, request: TrainRequest, decoding: Decoding, seed: tuple[int, ...]
) -> Batches:
    """Shuffle, crop at random and batch."""
    mixed = shuffled(examples, request.shuffle_buffer, np.random.default_rng((*seed, 0)))
    return batches_of(mixed, dataset, request, decoding, seed)


def batches_of(
    examples: Examples, dataset: Dataset, request: TrainRequest, decoding: Decoding, seed: tuple[int, ...] | None = None
) -> Batches:
    """Yield batches of crops in order, and decode those of the next ones meanwhile.

    Without a seed the crops are a validation's. What decodes an image puts it into its place in
    the batch: what the thread that trains does for each image decides how fast an accelerator one
    process can feed.
    """
    one_hot = np.eye(dataset.classes, dtype=np.float32)
    side, together, source = dataset.image_size, decoding.images_together, iter(examples)
    waiting: deque[tuple[list[Future[None]], Pixels, list[int]]] = deque()
    pool = ThreadPoolExecutor(decoding.workers)

    def finished() -> tuple[Pixels, NDArray[np.float32]]:
        futures, pixels, labels = waiting.popleft()
        for future in futures:
            future.result()
        return pixels, one_hot[labels]

    try:
        for first in itertools.count(step=request.batch_size):
            taken = list(islice(source, request.batch_size))
            if not taken:
                break
            pixels = np.empty((len(taken), side, side, 3), np.uint8)
            encoded = [image for image, _ in taken]
            parts = (slice(start, start + together) for start in range(0, len(taken), together))
            futures = [
                pool.submit(decoding.decode, Crops(side, seed, first + part.start, encoded[part]), pixels[part])
                for part in parts
            ]
            waiting.append((futures, pixels, [label for _, label in taken]))
            if len(waiting) > PREFETCHED_BATCHES:
                yield finished()
        while waiting:
            yield finished()
    finally:
        # A reader may stop in the middle of an epoch: nothing waits for images that nobody takes.
        pool.shutdown(wait=False, cancel_futures=True)


def checked(batches: Batches, folder: Path, split: Split) -> Batches:
    """Pass batches on.

    Raises TrialFailedError as `unreadable` says.
    """
    try:
        yield from batches
    except (OSError, ValueError) as error:
        raise unreadable(error, folder, split) from None
