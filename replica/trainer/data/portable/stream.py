"""Encoded images as a stream: shuffled in a buffer, decoded in threads, in batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aiperf.config.dataset_manifest import Split
from aiperf.config.datasets import Dataset
from aiperf.errors import TrialFailedError
from aiperf.host import this_host
from aiperf.wire.messages import TrainRequest
from replica.trainer.data.contract import Batches
from replica.trainer.data.portable.images import (
    Pixels,
    normalised,
    one_thread_an_image,
    train_image,
    validation_image,
)

Examples = Iterable[tuple[bytes, int]]
"""Pairs of encoded image and label (from 0)."""

Transform = Callable[[bytes, int], Pixels]
"""Makes the pixels of an encoded image from it and its number in the stream."""

PREFETCHED_BATCHES = 2


def shuffled(examples: Examples, buffer: int, rng: np.random.Generator) -> Iterator[tuple[bytes, int]]:
    """Each example once, drawn at random from a buffer that is kept full."""
    source = iter(examples)
    held = list(islice(source, buffer))
    for example in source:
        place = int(rng.integers(len(held)))
        yield held[place]
        held[place] = example
    for place in rng.permutation(len(held)):
        yield held[place]


def train_batches(examples: Examples, dataset: Dataset, request: TrainRequest, seed: tuple[int, ...]) -> Batches:
    """Shuffle, transform and batch."""
    mixed = shuffled(examples, request.shuffle_buffer, np.random.default_rng((*seed, 0)))

    def transform(encoded: bytes, number: int) -> Pixels:
        return train_image(encoded, dataset.image_size, np.random.default_rng((*seed, 1, number)))

    return _batches(mixed, dataset, request, transform)


def validation_batches(examples: Examples, dataset: Dataset, request: TrainRequest) -> Batches:
    """Transform and batch, in order."""
    return _batches(examples, dataset, request, lambda encoded, number: validation_image(encoded, dataset.image_size))


def _batches(examples: Examples, dataset: Dataset, request: TrainRequest, transform: Transform) -> Batches:
    one_hot = np.eye(dataset.classes, dtype=np.float32)
    pixels: list[Pixels] = []
    labels: list[int] = []
    for image, label in _transformed(examples, request, transform):
        pixels.append(image)
        labels.append(label)
        if len(pixels) == request.batch_size:
            yield normalised(np.stack(pixels)), one_hot[labels]
            pixels, labels = [], []
    if pixels:
        yield normalised(np.stack(pixels)), one_hot[labels]


def _transformed(examples: Examples, request: TrainRequest, transform: Transform) -> Iterator[tuple[Pixels, int]]:
    """Images in order, those of the next batches being decoded meanwhile."""
    waiting: deque[tuple[Future[Pixels], int]] = deque()
    ahead = PREFETCHED_BATCHES * request.batch_size
    pool = ThreadPoolExecutor(min(request.parallel_decode, this_host().usable_cpus()))
    one_thread_an_image()
    try:
        for number, (encoded, label) in enumerate(examples):
            waiting.append((pool.submit(transform, encoded, number), label))
            if len(waiting) > ahead:
                future, known = waiting.popleft()
                yield future.result(), known
        while waiting:
            future, known = waiting.popleft()
            yield future.result(), known
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def checked(batches: Batches, folder: Path, split: Split) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Pass batches on. Raises TrialFailedError ("data") with the split's name."""
    try:
        yield from batches
    except (OSError, ValueError) as error:
        reason = f"{folder}, {split}: {str(error)[:300]}; find it with: aiperf dataset check {folder}"
        raise TrialFailedError("data", reason) from None
