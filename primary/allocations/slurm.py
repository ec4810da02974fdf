"""Allocations of SLURM."""

import re
from collections.abc import Mapping

from aiperf.errors import UsageError
from primary.allocations.contract import Allocation, unusable, variable
from slurm.allocation import components


def find_slurm(environment: Mapping[str, str]) -> Allocation | None:
    """The job of SLURM_JOB_ID."""
    job = environment.get("SLURM_JOB_ID", "")
    if not job:
        return None
    title = f"SLURM job {job}"
    variable("SLURM_JOB_NODELIST", environment, title)
    try:
        hosts = tuple(host for component in components(environment) for host in component.nodes)
    except UsageError as error:
        raise unusable(title, f"SLURM_JOB_NODELIST: {error}") from None
    gpus = _gpus(environment)
    return Allocation("SLURM", job, hosts, _cpus(environment, len(hosts)), () if gpus is None else (gpus,) * len(hosts))


def _cpus(environment: Mapping[str, str], hosts: int) -> tuple[int, ...]:
    """CPUs of each node, from runs such as `16(x2),8`; none if they are not of all nodes."""
    runs = re.findall(r"(?:^|,)(\d+)(?:\(x(\d+)\))?", environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
    found = tuple(int(count) for count, times in runs for _ in range(int(times or 1)))
    return found if len(found) == hosts else ()


def _gpus(environment: Mapping[str, str]) -> int | None:
    """Counts by type, such as `a100:4,h100:4`. Requests in other ways do not speak of nodes."""
    words = [word.rpartition(":")[2] for word in environment.get("SLURM_GPUS_PER_NODE", "").split(",")]
    return sum(map(int, words)) if all(word.isdigit() for word in words) else None
