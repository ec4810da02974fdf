"""Launchers by name: they start replicas somewhere. Register a new launcher here."""

from aiperf.clock import Clock
from aiperf.config.settings import RunConfig
from aiperf.errors import UsageError
from aiperf.registry import Registry
from aiperf.run_directory.claim import PrimaryIdentity
from primary.launchers.contract import Exit, Launcher, LeavesJobs, OpenLauncher, ReplicaProcess, ReplicaSpec

LAUNCHERS: Registry[OpenLauncher] = Registry(
    "launcher",
    {
        "local": "primary.launchers.local:LocalLauncher",
        "ray": "primary.launchers.ray.launcher:RayLauncher",
        "scheduler": "primary.launchers.scheduler:open_scheduler_launcher",
        "slurm": "primary.launchers.slurm:SlurmLauncher",
        "ssh": "primary.launchers.ssh:SshLauncher",
    },
)


ONE_POOL = frozenset({"local", "ray"})
"""Launchers that do not choose nodes by name."""


def make_launcher(config: RunConfig, clock: Clock) -> Launcher:
    """The launcher that a configuration names.

    Raises UsageError if it cannot work with the configuration.
    """
    if config.run.exclude is not None and config.run.launcher in ONE_POOL:
        raise UsageError(f"run.exclude: the launcher {config.run.launcher} is told no nodes, and so can leave none out")
    return LAUNCHERS.load(config.run.launcher)(config, clock)


def end_leftovers(config: RunConfig, clock: Clock, identity: PrimaryIdentity) -> None:
    """End the replicas of earlier primaries of a run that a scheduler may have kept.

    Raises UsageError as `make_launcher`.
    """
    launcher = make_launcher(config, clock)
    if isinstance(launcher, LeavesJobs):
        launcher.end_leftovers(identity)


__all__ = [
    "LAUNCHERS",
    "Exit",
    "Launcher",
    "OpenLauncher",
    "ReplicaProcess",
    "ReplicaSpec",
    "end_leftovers",
    "make_launcher",
]
