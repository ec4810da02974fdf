"""Allocations by scheduler: the job that AIPerf was started in. Register a new scheduler here."""

from __future__ import annotations

from collections.abc import Mapping

from aiperf.config.placement import nodes_needed
from aiperf.config.settings import RunConfig
from aiperf.errors import EnvironmentNotReadyError, UsageError
from aiperf.registry import Registry
from primary.allocations.contract import Allocation, FindAllocation

ALLOCATIONS: Registry[FindAllocation] = Registry(
    "scheduler",
    {
        # First, because a Flux instance may run inside a job of any other scheduler.
        "Flux": "primary.allocations.flux:find_flux",
        "SLURM": "primary.allocations.slurm:find_slurm",
        "PBS": "primary.allocations.pbs:find_pbs",
        "LSF": "primary.allocations.lsf:find_lsf",
        "Grid Engine": "primary.allocations.grid_engine:find_grid_engine",
    },
)


def find_allocation(environment: Mapping[str, str]) -> Allocation | None:
    """The allocation that this process was started in; None outside.

    Variables that an outer job has left behind describe none: the next scheduler is asked. Raises
    EnvironmentNotReadyError, the first one, if none of those with variables describes its job.
    """
    stale: EnvironmentNotReadyError | None = None
    for name in ALLOCATIONS:
        try:
            if (allocation := ALLOCATIONS.load(name)(environment)) is not None:
                return allocation
        except EnvironmentNotReadyError as error:
            stale = stale or error
    if stale is not None:
        raise stale
    return None


def allocation_of(config: RunConfig, environment: Mapping[str, str]) -> Allocation | None:
    """The allocation whose hosts a run is to use; None if its launcher has others.

    Raises UsageError if there is none or it is too small, EnvironmentNotReadyError as above.
    """
    launcher = config.run.launcher
    if launcher != "scheduler" and (launcher != "ssh" or config.ssh.hosts):
        return None
    allocation = find_allocation(environment)
    if allocation is None:
        setting, remedy = 'run.launcher is "scheduler"', ""
        if launcher == "ssh":
            setting, remedy = "ssh.hosts is empty", "name the hosts, or "
        raise UsageError(
            f"{setting}, and this is not inside an allocation of {', '.join(ALLOCATIONS)}; "
            f"{remedy}start the run in a job (to check: aiperf nodes list)"
        )
    needed = nodes_needed(config)
    if len(allocation.hosts) < needed:
        raise UsageError(
            f"{allocation.title} has {len(allocation.hosts)} node(s); {config.run.replicas} replica(s) need {needed}: "
            "ask for more, or lower run.replicas"
        )
    return allocation


__all__ = ["ALLOCATIONS", "Allocation", "FindAllocation", "allocation_of", "find_allocation"]
