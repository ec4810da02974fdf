"""Several ranks through Horovod (Sergeev and Del Balso 2018), on MPI, Gloo or NCCL.

Only plain tensors travel: Horovod's object broadcasts would unpickle what they receive.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from horovod.common.exceptions import HorovodInternalError

from aiperf.errors import TrialFailedError


@contextmanager
def _others_may_die() -> Iterator[None]:
    try:
        yield
    except (HorovodInternalError, tf.errors.UnknownError) as error:
        raise TrialFailedError("rank_lost", f"another rank is gone: {str(error).strip()[:300]}") from None


class HorovodCollective:
    """The ranks that one starter has started together.

    Raises TrialFailedError ("ranks") if they are not as many as `ranks`, and ("start") if Horovod
    lacks the MPI that it is asked to use. `communicator`: of mpi4py, of a part of all ranks.
    """

    def __init__(self, ranks: int, communicator: Any = None) -> None:
        if os.environ.get("HOROVOD_CONTROLLER") == "mpi" and not hvd.mpi_built():
            # Horovod itself crashes if it is asked to use what it does not have.
            reason = "Horovod was built without MPI: install Open MPI, then build it again (make horovod)"
            raise TrialFailedError("start", reason)
        with _others_may_die():
            hvd.init(comm=communicator)
        if hvd.size() != ranks:
            raise TrialFailedError("ranks", f"{ranks} ranks were asked for, Horovod found {hvd.size()}")
        self.rank: int = hvd.rank()
        self.size: int = hvd.size()
        self.local_rank: int = hvd.local_rank()

    def broadcast(self, data: bytes) -> bytes:
        """Give every rank the bytes that rank 0 passed: first their number, then the bytes."""
        with _others_may_die():
            length = int(hvd.broadcast(tf.constant(len(data), tf.int64), root_rank=0, name="length"))
            own = np.frombuffer(data, np.uint8) if self.rank == 0 else np.zeros(length, np.uint8)
            received = hvd.broadcast(tf.constant(own), root_rank=0, name="bytes")
        return bytes(received.numpy().tobytes())

    def broadcast_variables(self, variables: Sequence[Any]) -> None:
        """Give every rank the values that rank 0 has."""
        with _others_may_die():
            for number, variable in enumerate(variables):
                value = tf.convert_to_tensor(variable)
                variable.assign(hvd.broadcast(value, root_rank=0, name=f"variable-{number}"))

    def average_variables(self, variables: Sequence[Any]) -> None:
        """Give every rank the mean over ranks."""
        if not variables:
            return
        with _others_may_die():
            values = [tf.convert_to_tensor(variable) for variable in variables]
            means = hvd.grouped_allreduce(values, op=hvd.Average, name="averages")
            for variable, mean in zip(variables, means, strict=True):
                variable.assign(mean)

    def sum_tensors(self, tensors: Sequence[Any], name: str) -> list[Any]:
        """Sums over ranks as one grouped all-reduce."""
        return list(hvd.grouped_allreduce(list(tensors), op=hvd.Sum, name=name))

    def close(self) -> None:
        """Leave the other ranks."""
        hvd.shutdown()
