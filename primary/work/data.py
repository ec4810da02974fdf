"""The data sets of a scientific suite, made and looked through before the run."""

import subprocess
from pathlib import Path

from aiperf.config.settings import RunConfig
from aiperf.errors import UsageError
from aiperf.files import cache_folder
from aiperf.processes import python_module

MOST_LINES = 20


def with_data(config: RunConfig) -> RunConfig:
    """The configuration with the folder of its data sets; those of a rehearsal are generated.

    Other runs are left as they are, and those of the official size that train nothing and name no
    folder. A folder that does not exist here is not a problem: it may exist on the nodes.
    Raises UsageError with everything that is wrong with the data.
    """
    science = config.science
    if config.run.suite != "science" or (science.data_dir is None and science.size == "official"):
        return config
    folder = _folder(config)
    makes = "make" if science.data_dir is None else "look"
    if (makes == "make" or folder.is_dir()) and (lines := _problems(config, makes)):
        raise UsageError(*lines)
    return config.model_copy(update={"science": science.model_copy(update={"data_dir": str(folder)})})


def science_problems(config: RunConfig) -> tuple[str, ...] | None:
    """Problems of the data of scientific workloads on this machine; nothing is made.

    None if there is nothing to look through: another suite, a folder that only the nodes have, or
    data that the run generates or does not read.
    """
    science = config.science
    if config.run.suite != "science" or science.data_dir is None or not _folder(config).is_dir():
        return None
    return _problems(config, "look")


def _folder(config: RunConfig) -> Path:
    return (
        Path(config.science.data_dir).absolute() if config.science.data_dir is not None else cache_folder() / "science"
    )


def _problems(config: RunConfig, makes: str) -> tuple[str, ...]:
    """The last words of the program that makes or looks through the data; none if all is well."""
    folder, science = str(_folder(config)), config.science
    command = python_module("workloads.datasets.science.ready", folder, science.size, makes, *science.workloads)
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    lines = [line for line in done.stderr.splitlines() if line.strip()] if done.returncode else []
    return tuple(lines[-MOST_LINES:])
