"""Random batches, and the loss of networks that train on them, on any framework."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from aiperf.network.layers import Shape


@dataclass(frozen=True, slots=True)
class RandomBatches:
    """A random batch that every step uses: (N, ...) float32, from a fixed seed, on the device."""

    images: Any

    @classmethod
    def of(cls, shape: Shape, batch_size: int, seed: int = 1) -> RandomBatches:
        """Draw standard normal values of the input's shape."""
        drawn = np.random.default_rng(seed).standard_normal((batch_size, *shape), np.float32)
        return cls(keras.ops.convert_to_tensor(drawn))

    def __iter__(self) -> Iterator[tuple[Any]]:
        while True:
            yield (self.images,)


def mean_square(outputs: Any) -> Any:
    """The sum of the mean squares of all outputs, in float32."""
    flat = keras.tree.flatten(outputs)
    return sum(keras.ops.mean(keras.ops.square(keras.ops.cast(each, "float32"))) for each in flat)


def size_of(batch: Iterable[Any]) -> int:
    """The bytes of all arrays of a batch, of NumPy or of the framework."""
    return sum(int(keras.ops.convert_to_numpy(part).nbytes) for part in batch)
