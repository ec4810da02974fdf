"""Training steps on random data by framework, for networks with outputs of any shapes."""

from aiperf.registry import Registry
from replica.measure.profile.networks.contract import NetworkSteps

NETWORK_STEPS: Registry[type[NetworkSteps]] = Registry(
    "framework",
    {
        "tensorflow": "replica.measure.profile.networks.tensorflow:TensorFlowNetworkSteps",
        "jax": "replica.measure.profile.networks.jax:JaxNetworkSteps",
        "torch": "replica.measure.profile.networks.torch:TorchNetworkSteps",
    },
)

__all__ = ["NETWORK_STEPS", "NetworkSteps"]
