"""Profilers by framework."""

from __future__ import annotations

from aiperf.registry import Registry
from replica.profile.recorders.contract import Recorder

RECORDERS: Registry[type[Recorder]] = Registry(
    "profiler",
    {
        "tensorflow": "replica.profile.recorders.tensorflow:TensorFlowRecorder",
        "jax": "replica.profile.recorders.jax:JaxRecorder",
        "torch": "replica.profile.recorders.torch:TorchRecorder",
    },
)

__all__ = ["RECORDERS", "Recorder"]
