"""A Keras model from any file that describes one: an architecture as JSON, or a .keras file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras

from aiperf.errors import UsageError
from aiperf.network.json_files import read_architecture
from replica.trainer.model.builder import build_model

KERAS_SUFFIX = ".keras"


def load_any(path: Path) -> Any:
    """Build an architecture file's model, or read a .keras file.

    Raises UsageError or ArchitectureError.
    """
    return load_keras_file(path) if path.suffix == KERAS_SUFFIX else build_model(read_architecture(path))


def load_keras_file(path: Path) -> Any:
    """Read a .keras file, refusing code in it. Raises UsageError."""
    try:
        return keras.saving.load_model(path, compile=False, safe_mode=True)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UsageError(f"{path}: cannot be read as a Keras model: {first}") from None
