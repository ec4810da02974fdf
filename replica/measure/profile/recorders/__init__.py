"""Profilers by framework."""

from aiperf.registry import Registry
from replica.measure.profile.recorders.contract import Recorder

RECORDERS: Registry[type[Recorder]] = Registry(
    "profiler",
    {
        "tensorflow": "replica.measure.profile.recorders.tensorflow:TensorFlowRecorder",
        "jax": "replica.measure.profile.recorders.jax:JaxRecorder",
        "torch": "replica.measure.profile.recorders.torch:TorchRecorder",
    },
)

__all__ = ["RECORDERS", "Recorder"]
