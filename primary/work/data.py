"""The generated data of a scientific rehearsal, made before the run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from aiperf.config.settings import RunConfig
from aiperf.errors import EnvironmentNotReadyError
from aiperf.processes import python_module


def with_data(config: RunConfig) -> RunConfig:
    """The configuration with the folder of its data sets, which are generated if they are missing.

    Other runs are left as they are. Raises EnvironmentNotReadyError.
    """
    science = config.science
    if config.run.suite != "science" or science.size != "rehearsal" or science.data_dir is not None:
        return config
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aiperf" / "science"
    done = subprocess.run(
        python_module("replica.datasets.science.rehearsal", str(cache), *science.workloads),
        stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise EnvironmentNotReadyError(
            [f"the data of the rehearsal cannot be generated: {done.stderr.strip()[-2000:]}"]
        )
    return config.model_copy(update={"science": science.model_copy(update={"data_dir": str(cache)})})
