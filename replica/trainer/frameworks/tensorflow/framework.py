"""TensorFlow as a framework: threads, devices, the kinds of its errors."""

import os
from importlib import metadata
from typing import Any

import tensorflow as tf

from aiperf.cli.units import MIB
from aiperf.config.frameworks import TRAITS
from aiperf.machine.accelerators import find_accelerators
from aiperf.wire.messages import ArchitectureRequest, WorkloadRequest
from replica.trainer.collectives.alone import AloneCollective
from replica.trainer.collectives.contract import Collective
from replica.trainer.failures import is_out_of_memory
from replica.trainer.framework import CompiledSteps, TaskSteps
from replica.trainer.frameworks.tensorflow.steps import TensorFlowSteps
from replica.trainer.tasks.contract import Task
from workloads.contract import Workload

KINDS = {
    "DataLossError": "data",
    "HorovodInternalError": "rank_lost",
}
"""Kinds of failures by the name of TensorFlow's or Horovod's exception."""


class TensorFlow:
    """The framework that `FRAMEWORKS` has by the name "tensorflow"."""

    pipeline = TRAITS["tensorflow"].pipeline

    def open_collective(self, ranks: int, limit_s: float | None = None) -> Collective:
        """One rank alone, or Horovod. Raises TrialFailedError ("ranks")."""
        if ranks == 1:
            return AloneCollective()
        from replica.trainer.frameworks.tensorflow.horovod import HorovodCollective  # noqa: PLC0415

        return HorovodCollective(ranks)

    def configure(self, cpu_threads: int, local_rank: int, part: float = 1.0) -> None:
        """Set threads; on GPUs, take this rank's own and let its memory grow as needed.

        It takes no more than `part` of it, if the driver says how much there is.
        """
        tf.config.threading.set_intra_op_parallelism_threads(cpu_threads)
        tf.config.threading.set_inter_op_parallelism_threads(cpu_threads)
        devices = tf.config.list_physical_devices("GPU")
        if devices:
            own = devices[local_rank % len(devices)]
            tf.config.set_visible_devices(own, "GPU")
            # Another process may be training on it now: take only what is used. This variable is
            # TensorFlow's one way to have growth and a limit: its functions exclude each other.
            os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
            found = find_accelerators()
            if part < 1 and local_rank < len(found):
                limit = int(part * found[local_rank].memory_bytes / MIB)
                tf.config.set_logical_device_configuration(own, [tf.config.LogicalDeviceConfiguration(limit)])

    def name(self) -> str:
        """Name and version, with Keras's."""
        return f"tensorflow {tf.__version__}, keras {metadata.version('keras')}"

    def accelerators(self) -> int:
        """The GPUs that TensorFlow lists: none in its build for CPUs."""
        return len(tf.config.list_physical_devices("GPU"))

    def device(self, local_rank: int) -> str:
        """The driver's name of the GPU that `configure` has taken; TensorFlow's if it has none."""
        devices = tf.config.list_physical_devices("GPU")
        if not devices:
            return "cpu"
        number = local_rank % len(devices)
        found = find_accelerators()
        if number < len(found):
            return found[number].name
        details = tf.config.experimental.get_device_details(devices[number])
        return str(details.get("device_name", "unknown accelerator"))

    def compile(
        self, model: Any, optimiser: Any, workload: Workload, collective: Collective, request: ArchitectureRequest
    ) -> CompiledSteps:
        """Compile the steps as graphs, with XLA if the request wants it."""
        return TensorFlowSteps(model, optimiser, workload, collective, request)

    def compile_task(self, task: Task, optimiser: Any, collective: Collective, request: WorkloadRequest) -> TaskSteps:
        """Compile the steps of a scientific task."""
        from replica.trainer.frameworks.tensorflow.task_steps import TensorFlowTaskSteps  # noqa: PLC0415  (loads Keras)

        return TensorFlowTaskSteps(task, optimiser, collective, request)

    def kind_of(self, error: Exception) -> str | None:
        """Find the kind by the exception's name, or by its text if memory is short.

        TensorFlow passes Horovod's errors on as UnknownError.
        """
        if is_out_of_memory(error):
            return "out_of_memory"
        name = type(error).__name__
        if name == "UnknownError" and "horovod" in str(error).lower():
            return "rank_lost"
        return KINDS.get(name)
