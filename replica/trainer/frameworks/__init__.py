"""Frameworks by name (`training.framework`), each imported only when it trains."""

from aiperf.registry import Registry
from replica.trainer.framework import Framework

FRAMEWORKS: Registry[type[Framework]] = Registry(
    "framework",
    {
        "tensorflow": "replica.trainer.frameworks.tensorflow.framework:TensorFlow",
        "jax": "replica.trainer.frameworks.jax.framework:Jax",
        "torch": "replica.trainer.frameworks.torch.framework:Torch",
    },
)
