"""The epochs of one training.

Each is opened before it is needed: no accelerator waits for a pipeline to fill.
"""

from __future__ import annotations

import itertools
from concurrent.futures import Future, ThreadPoolExecutor

from aiperf.wire.messages import TrainRequest
from replica.trainer.data.contract import Batches, DataSource, RankShare


class Epochs:
    """Batches of one rank. Failures of opening are raised when the batches are used."""

    def __init__(self, source: DataSource, request: TrainRequest, share: RankShare) -> None:
        self._source = source
        self._request = request
        self._share = share
        self._opener = ThreadPoolExecutor(1)
        self._train: dict[int, Future[Batches]] = {}
        self._validation: Future[Batches] | None = None

    def open(self, epoch: int) -> None:
        """Start to fill the pipelines of an epoch, in the background."""
        if epoch not in self._train:
            self._train[epoch] = self._opener.submit(self._first, epoch)

    def train(self, epoch: int) -> Batches:
        """Training batches of an epoch. The validation pipeline is opened behind it."""
        self.open(epoch)
        batches = self._train.pop(epoch).result()
        self._validation = self._opener.submit(self._first, None)
        return batches

    def validation(self) -> Batches:
        """Validation batches."""
        future = self._validation or self._opener.submit(self._first, None)
        self._validation = None
        return future.result()

    def _first(self, epoch: int | None) -> Batches:
        batches = self._batches(epoch)
        # With the first batch taken, everything that precedes it has been done.
        return itertools.chain(list(itertools.islice(batches, 1)), batches)

    def _batches(self, epoch: int | None) -> Batches:
        size = self._request.batch_size
        if epoch is None:
            return self._source.validation_batches(size, self._share.in_group)
        return self._source.train_batches(size, self._request.seed, epoch, self._share)
