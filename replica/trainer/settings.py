"""Settings that a rank reads from its command line, before it imports anything heavy, and those
that it gives its own process: its priority."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

TRAINING_NICENESS = 5
"""Niceness of a training: on a core shared with a thread of usual priority it gets a quarter."""

_FRAMEWORK_PREFIXES = (
    "TF_", "XLA_", "JAX_", "TORCH_", "PYTORCH_", "NVIDIA_", "CUDA_", "CUDNN_", "HOROVOD_", "NCCL_", "OMP_", "KERAS_",
    "TORCHINDUCTOR_", "TRITON_", "HIP_", "ROCR_", "MIOPEN_", "HSA_", "RCCL_", "UCX_", "GLOO_", "ZE_", "ONEAPI_",
    "SYCL_",
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


class RankSettings(BaseModel):
    """Settings that hold from the start of a rank."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    channel: str
    """Name of the agent's socket, for rank 0."""
    framework: str = "tensorflow"
    ranks: int = 1
    """Number of ranks that train, in all groups."""
    groups: int = 1
    servers: int = 0
    """Number of further ranks, the last ones, that are parameter servers: 0 unless hybrid."""
    cpu_threads: int = 1
    telemetry: TelemetrySettings | None = None
    patience_s: float = 0.0
    """Longest wait for storage that refuses."""


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
