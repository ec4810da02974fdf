"""The frameworks that train, as users install them."""

from __future__ import annotations

import importlib.util
import sys

from aiperf.cli.packages import to_install

TITLES = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}
"""Names in messages, by `training.framework`."""

GPU_EXTRAS = {"tensorflow": "gpu", "jax": "jax-cuda", "torch": "torch"}
"""The extras with their builds for NVIDIA GPUs; those for CPUs have the framework's name."""


def why_not_installed(framework: str) -> str | None:
    """The reason why this Python cannot train with a framework, with the remedy; None if it can."""
    missing = [name for name in (framework, "keras") if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    title = TITLES[framework] if framework in missing else "Keras"
    on_gpus = GPU_EXTRAS[framework]
    remedy = to_install(framework, on_gpus if on_gpus != framework else "")
    return f"{title} is not installed for {sys.executable}; install it {remedy}"
