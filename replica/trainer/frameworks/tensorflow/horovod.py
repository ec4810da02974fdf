"""Several ranks through Horovod (Sergeev and Del Balso 2018), on MPI, Gloo or NCCL.

Only plain tensors travel: Horovod's object broadcasts would unpickle what they receive.
"""

import os
from collections.abc import Sequence
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from horovod.common.exceptions import HorovodInternalError
from numpy.typing import NDArray

from aiperf.errors import TrialFailedError
from replica.trainer.collectives.contract import GRADIENTS, Collective
from replica.trainer.failures import others_may_die

HOST = "/device:CPU:0"

LOST = (HorovodInternalError, tf.errors.UnknownError)
"""Errors of Horovod, its own and those through TensorFlow, when another rank is gone."""


class HorovodCollective(Collective):
    """The collective of the ranks that one starter has started together.

    Raises TrialFailedError ("ranks") if they are not as many as `ranks`, and ("start") if Horovod
    lacks the MPI that it is asked to use.
    """

    def __init__(self, ranks: int) -> None:
        if os.environ.get("HOROVOD_CONTROLLER") == "mpi" and not hvd.mpi_built():
            # Horovod itself crashes if it is asked to use what it does not have.
            reason = "Horovod was built without MPI: install Open MPI, then build it again (make horovod)"
            raise TrialFailedError("start", reason)
        with others_may_die(*LOST):
            hvd.init()
        # Ranks that do not find each other, such as those of another MPI's starter, would train
        # alone.
        if hvd.size() != ranks:
            raise TrialFailedError("ranks", f"{ranks} ranks were asked for, Horovod found {hvd.size()}")
        self.rank: int = hvd.rank()
        self.size: int = hvd.size()
        self.local_rank: int = hvd.local_rank()
        self._seconds: Any = None
        """Seconds of the gradients' sums, a variable of graphs; None: none yet, or not measured."""

    def broadcast(self, data: bytes) -> bytes:
        """Give every rank the bytes that rank 0 passed: first their number, then the bytes.

        Tensors of the CPU travel by MPI or Gloo, whatever carries those of accelerators.
        """
        with others_may_die(*LOST), tf.device(HOST):
            length = int(hvd.broadcast(tf.constant(len(data), tf.int64), root_rank=0, name="length"))
            own = np.frombuffer(data, np.uint8) if self.rank == 0 else np.zeros(length, np.uint8)
            received = hvd.broadcast(tf.constant(own), root_rank=0, name="bytes")
            return bytes(received.numpy().tobytes())

    def broadcast_vector(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Give every rank the values that rank 0 passed, by MPI or Gloo, as `broadcast` does."""
        with others_may_die(*LOST), tf.device(HOST):
            received = hvd.broadcast(tf.constant(values.view(np.int32)), root_rank=0, name="vector")
        return np.asarray(received.numpy(), np.int32).view(np.float32)

    def gather(self, text: str) -> tuple[str, ...]:
        """Collect the texts of all ranks, by rank: first their numbers of bytes, then the bytes."""
        own = np.frombuffer(text.encode(), np.uint8)
        with others_may_die(*LOST), tf.device(HOST):
            lengths = hvd.allgather(tf.constant([len(own)], tf.int64), name="text-lengths").numpy()
            joined = hvd.allgather(tf.constant(own), name="texts").numpy()
        return tuple(part.tobytes().decode() for part in np.split(joined, np.cumsum(lengths)[:-1]))

    def broadcast_variables(self, variables: Sequence[Any]) -> None:
        """Give every rank the values that rank 0 has."""
        with others_may_die(*LOST):
            for number, variable in enumerate(variables):
                value = tf.convert_to_tensor(variable)
                variable.assign(hvd.broadcast(value, root_rank=0, name=f"variable-{number}"))

    def average_variables(self, variables: Sequence[Any]) -> None:
        """Give every rank the mean over ranks."""
        if not variables:
            return
        with others_may_die(*LOST):
            values = [tf.convert_to_tensor(variable) for variable in variables]
            means = hvd.grouped_allreduce(values, op=hvd.Average, name="averages")
            for variable, mean in zip(variables, means, strict=True):
                variable.assign(mean)

    def sum_tensors(self, tensors: Sequence[Any], name: str) -> list[Any]:
        """Sums over ranks as one grouped all-reduce."""
        # On accelerators, kernels are only queued when the operations of a graph are over.
        if name != GRADIENTS or self.size == 1 or tf.config.list_physical_devices("GPU"):
            return list(hvd.grouped_allreduce(list(tensors), op=hvd.Sum, name=name))
        if self._seconds is None:
            with tf.init_scope(), tf.device(HOST):
                self._seconds = tf.Variable(0.0, trainable=False, dtype=tf.float64)
        # Horovod begins with a group when the last of its tensors is computed, and so does this.
        with tf.control_dependencies(tensors):
            begun_s = tf.timestamp()
        with tf.control_dependencies([begun_s]):
            own = [tf.identity(tensor) for tensor in tensors]
        summed = list(hvd.grouped_allreduce(own, op=hvd.Sum, name=name))
        with tf.control_dependencies(summed):
            self._seconds.assign_add(tf.timestamp() - begun_s)
        return summed

    def take_exchange_s(self) -> float | None:
        """Take the seconds of the gradients' sums; None on accelerators."""
        if self._seconds is None:
            return None
        found = float(self._seconds)
        self._seconds.assign(0.0)
        # TensorFlow's graphs read the system's clock, which may be set back meanwhile.
        return max(0.0, found)

    def close(self) -> None:
        """Leave the other ranks."""
        hvd.shutdown()
