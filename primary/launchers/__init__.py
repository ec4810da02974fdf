"""Launchers by name: where replicas run. The one place where a new launcher is registered."""

from __future__ import annotations

from aiperf.config.settings import RunConfig
from primary.launchers.contract import Exit, Launcher, ReplicaProcess, ReplicaSpec
from primary.launchers.local import LocalLauncher
from primary.launchers.slurm import SlurmLauncher


def make_launcher(config: RunConfig) -> Launcher:
    """The launcher that a configuration names. Raises UsageError where it cannot work with it.

    ssh is imported only where it is used: paramiko takes its time.
    """
    if config.run.launcher == "slurm":
        return SlurmLauncher(config)
    if config.run.launcher == "ssh":
        from primary.launchers.ssh import SshLauncher  # noqa: PLC0415

        return SshLauncher(config)
    return LocalLauncher(config)


__all__ = ["Exit", "Launcher", "ReplicaProcess", "ReplicaSpec", "make_launcher"]
