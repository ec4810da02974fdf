"""Settings that a rank reads from its command line, before it imports anything heavy, and those
that it gives its own process: its priority."""

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from aiperf.config.frameworks import DEFAULT_FRAMEWORK

TRAINING_NICENESS = 5
"""Niceness of a training: on a core shared with a thread of usual priority it gets a quarter."""

_FRAMEWORK_PREFIXES = (
    "TF_", "XLA_", "JAX_", "TORCH_", "PYTORCH_", "NVIDIA_", "CUDA_", "CUDNN_", "HOROVOD_", "NCCL_", "OMP_", "KERAS_",
    "TORCHINDUCTOR_", "TRITON_", "HIP_", "ROCR_", "MIOPEN_", "HSA_", "RCCL_", "UCX_", "GLOO_", "ZE_", "ONEAPI_",
    "SYCL_", "FI_", "OFI_NCCL_", "RDMAV_", "ONEDNN_",
)  # fmt: skip
_SECRET_WORDS = ("SECRET", "TOKEN", "PASSWORD", "API_KEY")
_VALUE_CHARACTERS = 200


class TelemetrySettings(BaseModel):
    """Settings of telemetry on a replica's further nodes; the agent samples the first one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str
    writer: str
    replica: int
    interval_s: float


class GroupPlaces(BaseModel):
    """The groups and servers of a hybrid training, and where their processes reach each other.

    Processes are numbered: the roots of the groups, the servers, the starter of all.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    groups: int
    servers: int
    addresses: dict[int, str]
    """Addresses, as ZeroMQ has them, of the processes that listen: root 0 and the servers."""
    interface: str | None = None
    """Network interface that they listen on between nodes; None: all."""
    server_grace_s: float = 0.0
    """Seconds in which a server that was killed may be back."""

    @property
    def server_numbers(self) -> range:
        """The numbers of the servers."""
        return range(self.groups, self.groups + self.servers)

    @property
    def starter(self) -> int:
        """The number of the starter."""
        return self.groups + self.servers

    def grace_s(self, number: int) -> float:
        """Seconds in which a process that is gone may be back."""
        return self.server_grace_s if number in self.server_numbers else 0.0

    def name_of(self, number: int) -> str:
        """The name of a process, for people: "group 1", "server 0"."""
        if number < self.groups:
            return f"group {number}"
        return f"server {number - self.groups}" if number < self.starter else "the starter"


class RankSettings(BaseModel):
    """Settings that hold from the start of a rank."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    channel: str
    """Name of the agent's socket, for rank 0."""
    framework: str = DEFAULT_FRAMEWORK
    ranks: int = 1
    """Number of ranks that a starter starts together: all, or those of a group."""
    places: GroupPlaces | None = None
    """The groups of a hybrid training; None in a synchronous one."""
    number: int = 0
    """Number, among the processes of `places`, of this rank's group, or of this server."""
    cpu_threads: int = 1
    accelerator_part: float = 1.0
    """Part of its accelerator's memory that a rank may take: replicas may share the accelerator."""
    sharers: int = 1
    """Replicas whose ranks compute on this replica's accelerators."""
    exchange_limit_s: float | None = None
    """Longest exchange of tensors, after which a rank takes another one for lost; None: the
    library's own."""
    takes_unlisted: bool = False
    """True if an accelerator that AIPerf does not find is used: the user has set its memory."""
    telemetry: TelemetrySettings | None = None
    patience_s: float = 0.0
    """Longest wait for storage that refuses."""

    @property
    def is_server(self) -> bool:
        """True for a parameter server, which is no rank."""
        return self.places is not None and self.number >= self.places.groups


def read_settings() -> RankSettings:
    """Read the settings from the first argument."""
    return RankSettings.model_validate_json(sys.argv[1])


def framework_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables that change what frameworks and their libraries do, sorted; long values are cut."""
    return {
        name: environment[name][:_VALUE_CHARACTERS]
        for name in sorted(environment)
        if name.startswith(_FRAMEWORK_PREFIXES) and not any(word in name for word in _SECRET_WORDS)
    }


def yield_to_warm_up() -> None:
    """Give way to the ranks that warm up for the next trial, if they share CPUs with this one.

    They have little to do, and everything waits for them if they are late. Linux has a priority
    for each thread.
    """
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, int(thread.name), TRAINING_NICENESS)
