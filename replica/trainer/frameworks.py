"""Frameworks by name, each imported only when it trains."""

from __future__ import annotations

from aiperf.registry import Registry
from replica.trainer.framework import Framework

FRAMEWORKS: Registry[type[Framework]] = Registry(
    "framework", {"tensorflow": "replica.trainer.tensorflow.framework:TensorFlow"}
)

DEFAULT_FRAMEWORK = "tensorflow"
"""The framework that trains."""
