"""Checks before a run starts; all problems are reported at once."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import sys
from pathlib import Path

from aiperf.cli.units import GIB
from aiperf.config.datasets import data_problems
from aiperf.config.settings import RunConfig
from aiperf.errors import EnvironmentNotReadyError, UsageError
from aiperf.run_directory.paths import RunPaths


def check(config: RunConfig, output: Path) -> None:
    """Raise UsageError or EnvironmentNotReadyError with every problem; changes nothing on disk."""
    usage = [*_dataset_problems(config), *_output_problems(output)]
    if usage:
        raise UsageError("\n".join(usage))
    environment = [*_package_problems(config), *_port_problems(config), *_disk_problems(config, output)]
    if environment:
        raise EnvironmentNotReadyError(environment)


def check_resumption(config: RunConfig) -> None:
    """Raise EnvironmentNotReadyError with everything that keeps a run from being resumed here."""
    if problems := [*_package_problems(config), *_port_problems(config)]:
        raise EnvironmentNotReadyError(problems)


def _dataset_problems(config: RunConfig) -> list[str]:
    if config.needs_data:
        return data_problems(config.run.dataset, config.run.data_dir, must_exist=False)
    return []


def _output_problems(output: Path) -> list[str]:
    if not output.exists():
        return []
    if not output.is_dir():
        return [f"--output {output} is not a directory; name a new or an empty one"]
    if RunPaths(output).run.exists():
        return [f"--output {output} holds another run; name a new directory (this one was not changed)"]
    if any(output.iterdir()):
        return [f"--output {output} is not empty; name a new or an empty directory"]
    return []


def _package_problems(config: RunConfig) -> list[str]:
    problems = []
    if config.training.trainer == "keras" and importlib.util.find_spec("tensorflow") is None:
        problems.append(
            f"TensorFlow is not installed for {sys.executable}; "
            "install it with: pip install 'aiperf-hpc[tensorflow]' (or [gpu])"
        )
    if config.run.manager == "nni" and importlib.util.find_spec("nni") is None:
        problems.append(
            f"--manager nni: NNI is not installed for {sys.executable}; install it with: pip install 'aiperf-hpc[nni]'"
        )
    return problems


def _port_problems(config: RunConfig) -> list[str]:
    if config.run.manager != "nni":
        return []
    with socket.socket() as probe:
        taken = probe.connect_ex(("127.0.0.1", config.nni.port)) == 0
    return [f"nni.port: {config.nni.port} is taken by another program"] if taken else []


def _disk_problems(config: RunConfig, output: Path) -> list[str]:
    existing = next(parent for parent in (output, *output.absolute().parents) if parent.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        return [f"--output {output} cannot be created: {existing} is not writable"]
    free_gib = shutil.disk_usage(existing).free / GIB
    wanted_gib = config.run.min_free_disk_gib
    if free_gib < wanted_gib:
        return [
            f"too little disk space below {existing}: {free_gib:.1f} GiB free, {wanted_gib:.1f} GiB wanted "
            "(run.min_free_disk_gib)"
        ]
    return []
