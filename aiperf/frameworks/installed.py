"""The frameworks that train, as users install them."""

from __future__ import annotations

import importlib.util
import sys

TITLES = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}
"""Names in messages, by `training.framework`."""

EXTRAS = {"tensorflow": "'.[tensorflow]' (or '.[gpu]')", "jax": "'.[jax]' (or '.[jax-cuda]')", "torch": "'.[torch]'"}
"""What to install from AIPerf's sources; in brackets, on NVIDIA GPUs."""

GPU_EXTRAS = {"tensorflow": "'.[gpu]'", "jax": "'.[jax-cuda]'", "torch": "'.[torch]'"}
"""What to install on NVIDIA GPUs."""


def why_not_installed(framework: str) -> str | None:
    """The reason why this Python cannot train with a framework, with the remedy; None if it can."""
    missing = [name for name in (framework, "keras") if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    title = TITLES[framework] if framework in missing else "Keras"
    return (
        f"{title} is not installed for {sys.executable}; "
        f"install it in the folder of AIPerf's sources: pip install {EXTRAS[framework]}"
    )
