"""JAX as a framework: threads, devices, the kinds of its errors."""

import os
from importlib import metadata
from typing import Any

import jax

from aiperf.config.frameworks import TRAITS
from aiperf.errors import TrialFailedError
from aiperf.machine.accelerators import find_accelerators
from aiperf.wire.messages import ArchitectureRequest, WorkloadRequest
from replica.trainer.collectives.alone import AloneCollective
from replica.trainer.collectives.contract import Collective
from replica.trainer.failures import is_out_of_memory
from replica.trainer.framework import CompiledSteps, TaskSteps
from replica.trainer.frameworks.jax import MEMORY, MOST_MEMORY
from replica.trainer.tasks.contract import Task
from workloads.contract import Workload

LOST_RANK = ("gloo", "nccl", "connection closed by peer", "connection reset by peer", "coordination service")


class Jax:
    """The framework that `FRAMEWORKS` has by the name "jax"."""

    pipeline = TRAITS["jax"].pipeline

    def open_collective(self, ranks: int, limit_s: float | None = None) -> Collective:
        """One rank alone, or JAX's distributed runtime. Raises TrialFailedError ("ranks")."""
        if ranks == 1:
            return AloneCollective()
        from replica.trainer.frameworks.jax.collective import JaxCollective  # noqa: PLC0415

        return JaxCollective(ranks)

    def configure(self, cpu_threads: int, local_rank: int, part: float = 1.0) -> None:
        """Set the threads of XLA's CPU client, which reads them when it is first used.

        A GPU's client reads its part of the memory then, too; one that the user has set stays.

        Several ranks have chosen their devices as they joined.
        """
        os.environ["NPROC"] = str(cpu_threads)
        if os.environ.get(MEMORY) == MOST_MEMORY:
            os.environ[MEMORY] = str(round(part * float(MOST_MEMORY), 3))

    def name(self) -> str:
        """Name and version, with Keras's."""
        return f"jax {jax.__version__}, keras {metadata.version('keras')}"

    def accelerators(self) -> int:
        """Devices of this process that are not CPUs."""
        return sum(device.platform != "cpu" for device in jax.local_devices())

    def device(self, local_rank: int) -> str:
        """The driver's name of this rank's device; JAX's if the driver's library has none."""
        devices = jax.local_devices()
        own = devices[local_rank % len(devices)]
        if own.platform == "cpu":
            return "cpu"
        found = find_accelerators()
        return found[own.local_hardware_id].name if own.local_hardware_id < len(found) else str(own.device_kind)

    def compile(
        self, model: Any, optimiser: Any, workload: Workload, collective: Collective, request: ArchitectureRequest
    ) -> CompiledSteps:
        """Compile the steps by XLA, whatever the request says."""
        from replica.trainer.frameworks.jax.group_steps import GroupSteps  # noqa: PLC0415  (loads Keras)
        from replica.trainer.frameworks.jax.steps import JaxSteps  # noqa: PLC0415

        kind = JaxSteps if request.hybrid is None else GroupSteps
        return kind(model, optimiser, workload, collective, request)

    def compile_task(self, task: Task, optimiser: Any, collective: Collective, request: WorkloadRequest) -> TaskSteps:
        """Refuse: no steps of tasks are written for JAX. Raises TrialFailedError ("build")."""
        raise TrialFailedError("build", "scientific workloads train on tensorflow and torch, not on jax")

    def kind_of(self, error: Exception) -> str | None:
        """Find the kind by the text of XLA's status; the host's memory has C++'s own error."""
        if is_out_of_memory(error):
            return "out_of_memory"
        text = str(error).lower()
        if isinstance(error, jax.errors.JaxRuntimeError) and any(words in text for words in LOST_RANK):
            return "rank_lost"
        return None
