"""Allocations of SLURM."""

from __future__ import annotations

import re
from collections.abc import Mapping

from aiperf.errors import UsageError
from primary.allocations.contract import Allocation, same_everywhere, unusable, variable
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
    cpus = re.findall(r"(?:^|,)(\d+)", environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
    return Allocation("SLURM", job, hosts, same_everywhere(map(int, cpus)), _gpus(environment))


def _gpus(environment: Mapping[str, str]) -> int | None:
    """Counts by type, such as `a100:4,h100:4`. Requests in other ways do not speak of nodes."""
    words = [word.rpartition(":")[2] for word in environment.get("SLURM_GPUS_PER_NODE", "").split(",")]
    return sum(map(int, words)) if all(word.isdigit() for word in words) else None
