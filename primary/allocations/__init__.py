"""Allocations by scheduler: the job that AIPerf was started in. Register a new scheduler here."""

from collections.abc import Mapping

from aiperf.config.placement import nodes_needed
from aiperf.config.settings import RunConfig
from aiperf.errors import EnvironmentNotReadyError, UsageError
from aiperf.host import this_host
from aiperf.registry import Registry
from primary.allocations.contract import Allocation, FindAllocation
from slurm.hostlists import without

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

    Variables that another job has left behind describe none, or one without this host: they are
    passed over. Raises EnvironmentNotReadyError, the first one, if none of those with variables
    describes its job.
    """
    found, problems = _described(environment)
    if not found and problems:
        raise problems[0]
    return next(iter([each for each in found if _is_here(each)] or found), None)


def passed_over(environment: Mapping[str, str]) -> list[str]:
    """Jobs whose variables have no effect, with the reason, if another job counts."""
    found, problems = _described(environment)
    chosen = find_allocation(environment) if found else None
    others = [f"{each.title}, which does not have this host" for each in found if each != chosen and not _is_here(each)]
    return [*others, *(str(problem).partition(". ")[0] for problem in problems)] if found else []


def _described(environment: Mapping[str, str]) -> tuple[list[Allocation], list[EnvironmentNotReadyError]]:
    """The jobs that the variables describe, and why others cannot be read."""
    found, problems = list[Allocation](), list[EnvironmentNotReadyError]()
    for name in ALLOCATIONS:
        try:
            if (allocation := ALLOCATIONS.load(name)(environment)) is not None:
                found.append(allocation)
        except EnvironmentNotReadyError as error:
            problems.append(error)
    return found, problems


def _is_here(allocation: Allocation) -> bool:
    return _short(this_host().name()) in map(_short, allocation.hosts)


def _short(host: str) -> str:
    return host.partition(".")[0].lower()


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
    allocation = allocation.kept(without(allocation.hosts, config.run.exclude))
    needed = nodes_needed(config)
    if len(allocation.hosts) < needed:
        raise UsageError(
            f"{allocation.title} has {len(allocation.hosts)} node(s); {config.run.replicas} replica(s) need {needed}: "
            "ask for more, or lower run.replicas"
        )
    return allocation


__all__ = ["ALLOCATIONS", "Allocation", "FindAllocation", "allocation_of", "find_allocation", "passed_over"]
