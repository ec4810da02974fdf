"""PyTorch as a framework: threads, devices, the kinds of its errors."""

import os
import re
from datetime import timedelta
from importlib import metadata
from typing import Any

import torch

from aiperf.config.frameworks import TRAITS
from aiperf.errors import TrialFailedError
from aiperf.machine.accelerators import find_accelerators
from aiperf.wire.messages import UNFIT, ArchitectureRequest, WorkloadRequest
from replica.trainer.collectives.alone import AloneCollective
from replica.trainer.collectives.contract import Collective
from replica.trainer.failures import is_out_of_memory
from replica.trainer.framework import CompiledSteps, TaskSteps
from replica.trainer.frameworks.torch.collective import TorchCollective
from replica.trainer.frameworks.torch.memory import keep_freed_memory, limit_memory
from replica.trainer.tasks.contract import Task
from workloads.contract import Workload

COMPILERS = 32
"""Most processes that compile for a rank: Inductor's own limit, which its variable overrides."""

COPIERS = 4
"""Most threads of PyTorch's own next to an accelerator."""

LOST_RANK = ("connection closed by peer", "connection reset by peer", "broken pipe", "gloo", "nccl")


def _accelerator() -> str | None:
    """PyTorch's word for the kind of accelerator that it has; None without one."""
    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return None if kind is None else str(kind.type)


def check_device(computes_on: str) -> None:
    """Raise TrialFailedError ("unfit") if variables are not on the device that is reported."""
    kind = _accelerator()
    if kind is not None and computes_on != kind:
        raise TrialFailedError(
            UNFIT, f"Keras keeps its variables on {computes_on!r}, not on this node's {kind!r}: set KERAS_TORCH_DEVICE"
        )


def check_kernels() -> None:
    """Raise TrialFailedError ("unfit") if this build has no kernels for the NVIDIA GPU in use.

    PyTorch lists such a GPU all the same; the first operation on it fails. Builds for CUDA 13 have
    kernels from Turing on (compute capability 7.5).
    """
    built = [int(name) for name in re.findall(r"sm_(\d+)", " ".join(torch.cuda.get_arch_list()))]
    if torch.version.cuda is None or not built:
        return
    major, minor = torch.cuda.get_device_capability()
    if 10 * major + minor < min(built):
        least = f"{min(built) // 10}.{min(built) % 10}"
        raise TrialFailedError(
            UNFIT,
            f"PyTorch {torch.__version__} has no kernels for {torch.cuda.get_device_name()} (compute capability "
            f"{major}.{minor}, it has them from {least} on): install PyTorch's build for an earlier CUDA",
        )


class Torch:
    """The framework that `FRAMEWORKS` has by the name "torch"."""

    pipeline = TRAITS["torch"].pipeline

    def open_collective(self, ranks: int, limit_s: float | None = None) -> Collective:
        """One rank alone, or `torch.distributed`. Raises TrialFailedError ("ranks")."""
        limit = None if limit_s is None else timedelta(seconds=limit_s)
        return AloneCollective() if ranks == 1 else TorchCollective(ranks, limit)

    def configure(self, cpu_threads: int, local_rank: int, part: float = 1.0) -> None:
        """Set threads and take this rank's accelerator; PyTorch takes its memory as needed.

        It takes no more than `part` of it: graphs of steps keep memory of their own.

        NVIDIA's library tries all its convolutions once for each shape. Raises TrialFailedError
        ("unfit") if PyTorch's build has no kernels for the accelerator.
        """
        if (kind := _accelerator()) is not None:
            # Keras itself knows CUDA's and Intel's, and would compute on the CPU next to others.
            os.environ.setdefault("KERAS_TORCH_DEVICE", kind)
        # Inductor reads it when it is first used; other ranks compile on the other CPUs.
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(min(cpu_threads, COMPILERS)))
        # Next to an accelerator there are batches to copy alone, and each thread that has done so
        # polls for milliseconds, on a CPU on which images could be decoded.
        torch.set_num_threads(min(cpu_threads, COPIERS) if self.accelerators() else cpu_threads)
        torch.set_num_interop_threads(cpu_threads)
        if self.accelerators():
            torch.accelerator.set_device_index(local_rank % self.accelerators())
            check_kernels()
            # Shapes are fixed but for an epoch's last batch: trying all algorithms once pays. With
            # this setting MIOpen (AMD) would compile and try every kernel that it has, for minutes
            # a shape (pull request 145294 of PyTorch); without, it tries few.
            torch.backends.cudnn.benchmark = torch.version.hip is None
            if part < 1:
                limit_memory(part)
        else:
            keep_freed_memory()

    def name(self) -> str:
        """Name and version, with Keras's."""
        return f"torch {torch.__version__}, keras {metadata.version('keras')}"

    def accelerators(self) -> int:
        """The devices of the accelerator that PyTorch is built for; none in its build for CPUs."""
        return int(torch.accelerator.device_count())

    def device(self, local_rank: int) -> str:
        """The driver's name of the device that `configure` has taken; PyTorch's if it has none."""
        count = self.accelerators()
        if not count:
            return "cpu"
        number, found = local_rank % count, find_accelerators()
        if number < len(found):
            return found[number].name
        kind = torch.accelerator.current_accelerator()
        named = getattr(torch.get_device_module(kind), "get_device_name", None)
        return str(named(number)) if named is not None else "unknown accelerator"

    def compile(
        self, model: Any, optimiser: Any, workload: Workload, collective: Collective, request: ArchitectureRequest
    ) -> CompiledSteps:
        """Make the steps, which are computed layer by layer."""
        from replica.trainer.frameworks.torch.steps import TorchSteps  # noqa: PLC0415  (loads Keras)

        check_device(model.trainable_variables[0].value.device.type)
        return TorchSteps(model, optimiser, workload, collective, request)

    def compile_task(self, task: Task, optimiser: Any, collective: Collective, request: WorkloadRequest) -> TaskSteps:
        """Make the steps of a scientific task."""
        from replica.trainer.frameworks.torch.task_steps import TorchTaskSteps  # noqa: PLC0415  (loads Keras)

        check_device(task.network.trainable_variables[0].value.device.type)
        return TorchTaskSteps(task, optimiser, collective, request)

    def kind_of(self, error: Exception) -> str | None:
        """Find the kind by the exception's type, or by its text: most are RuntimeErrors."""
        if is_out_of_memory(error):
            return "out_of_memory"
        text = str(error).lower()
        if isinstance(error, RuntimeError) and any(words in text for words in LOST_RANK):
            return "rank_lost"
        return None
