"""The framework as it finds itself: `python -m replica.examine.framework` prints it as JSON.

A process of its own: a framework reserves the memory of accelerators, and may crash.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from importlib import metadata

import tensorflow as tf

CONTROLLERS = ("mpi", "gloo", "nccl")


def describe() -> dict[str, object]:
    """Version and devices, and whether and with what Horovod was built."""
    facts: dict[str, object] = {
        "version": f"tensorflow {tf.__version__}, keras {metadata.version('keras')}",
        "devices": [_name(device) for device in tf.config.list_physical_devices("GPU")],
        "horovod": None,
    }
    if importlib.util.find_spec("horovod") is None:
        return facts
    try:
        import horovod  # noqa: PLC0415
        import horovod.tensorflow as hvd  # noqa: PLC0415
    except Exception as error:  # a library that is missing, or built for another TensorFlow
        return {**facts, "horovod_problem": f"{type(error).__name__}: {str(error).strip()[:500]}"}
    built = [name for name in CONTROLLERS if getattr(hvd, f"{name}_built")()]
    return {**facts, "horovod": str(horovod.__version__), "built_for": built}


def _name(device: object) -> str:
    details = tf.config.experimental.get_device_details(device)
    return str(details.get("device_name", "unknown accelerator"))


if __name__ == "__main__":
    # Libraries print to standard output as they load: only the last line is ours.
    sys.stdout.write("\n" + json.dumps(describe()) + "\n")
    sys.stdout.flush()
    os._exit(0)
