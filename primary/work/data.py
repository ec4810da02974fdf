"""The data sets of a scientific suite, made and looked through before the run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from aiperf.config.settings import RunConfig
from aiperf.errors import UsageError
from aiperf.processes import python_module

MOST_LINES = 20


def with_data(config: RunConfig) -> RunConfig:
    """The configuration with the folder of its data sets; those of a rehearsal are generated.

    Other runs are left as they are. A folder that does not exist here is not a problem: it may
    exist on the nodes. Raises UsageError with everything that is wrong with the data.
    """
    science = config.science
    if config.run.suite != "science":
        return config
    folder = Path(science.data_dir).absolute() if science.data_dir is not None else _cache()
    makes = "make" if science.data_dir is None else "look"
    if makes == "make" or folder.is_dir():
        done = subprocess.run(
            python_module("workloads.datasets.science.ready", str(folder), science.size, makes, *science.workloads),
            stderr=subprocess.PIPE, text=True, errors="replace", check=False,
        )  # fmt: skip
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            raise UsageError(*lines[-MOST_LINES:])
    return config.model_copy(update={"science": science.model_copy(update={"data_dir": str(folder)})})


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aiperf" / "science"
