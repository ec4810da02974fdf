"""A framework by its own account: `python -m replica.agent.examine.framework NAME`, as JSON.

A process of its own: a framework reserves the memory of accelerators, and may crash.
"""

import importlib.util
import json
import os
import sys

from aiperf.config.frameworks import TRAITS
from replica.trainer.frameworks import FRAMEWORKS

CONTROLLERS = ("mpi", "gloo", "nccl")


def describe(name: str) -> dict[str, object]:
    """Give version and devices; if Horovod joins its ranks, also its version and libraries."""
    framework = FRAMEWORKS.load(name)()
    devices = [framework.device(number) for number in range(framework.accelerators())]
    facts: dict[str, object] = {"version": framework.name(), "devices": devices, "horovod": None}
    if not TRAITS[name].takes_horovod or importlib.util.find_spec("horovod") is None:
        return facts
    try:
        import horovod  # noqa: PLC0415
        import horovod.tensorflow as hvd  # noqa: PLC0415
    except Exception as error:  # a library that is missing, or built for another TensorFlow
        return {**facts, "horovod_problem": f"{type(error).__name__}: {str(error).strip()[:500]}"}
    built = [name for name in CONTROLLERS if getattr(hvd, f"{name}_built")()]
    return {**facts, "horovod": str(horovod.__version__), "built_for": built}


if __name__ == "__main__":
    # Libraries print to standard output as they load: only the last line is ours.
    sys.stdout.write("\n" + json.dumps(describe(sys.argv[1])) + "\n")
    sys.stdout.flush()
    # The interpreter's own exit would wait for the framework's threads and tear down its devices.
    os._exit(0)
