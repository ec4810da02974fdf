"""The SLURM job that a process is in: its components, and its GPUs as SLURM itself lists them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from slurm.hostlists import expand

SPECIAL_STEPS = 0xFFFFFFF0
"""First number of the steps that hold no resources: a batch script's, and salloc's own shell."""

_GPUS = re.compile(r"gpu(?::[\w.-]+)?:(\d+)")


@dataclass(frozen=True, slots=True)
class Component:
    """A job, or one of the several parts of a heterogeneous job."""

    job: str
    nodes: tuple[str, ...]


def components(environment: Mapping[str, str]) -> tuple[Component, ...]:
    """The components of the job, from its variables; none outside of a job.

    Raises UsageError if a list of nodes cannot be read.
    """
    count = environment.get("SLURM_HET_SIZE", "")
    groups = [f"_HET_GROUP_{number}" for number in range(int(count))] if count.isdigit() else [""]
    found = [(environment.get(f"SLURM_JOB_ID{end}"), environment.get(f"SLURM_JOB_NODELIST{end}", "")) for end in groups]
    if not all(job for job, _ in found):
        found = [(environment.get("SLURM_JOB_ID"), environment.get("SLURM_JOB_NODELIST", ""))]
    return tuple(Component(job, expand(names)) for job, names in found if job)


def in_a_step(environment: Mapping[str, str]) -> bool:
    """True in a step that may hold what other steps need, such as `srun --pty bash`."""
    step = environment.get("SLURM_STEP_ID", "")
    return step.isdigit() and int(step) < SPECIAL_STEPS


def gpus_of_nodes(shown: str) -> int | None:
    """The fewest GPUs that a job has on one of its nodes, from `scontrol show job --details`.

    None if it does not say.
    """
    # One line for each group of equal nodes, if SLURM gives details; else the job's total, which is
    # taken as even.
    nodes = re.findall(r"^\s*Nodes=\S+ CPU_IDs=.*$", shown, re.MULTILINE)
    if nodes:
        return min(sum(map(int, _GPUS.findall(line.partition(" GRES=")[2]))) for line in nodes)
    total, count = re.findall(r"TRES=\S*?gres/gpu=(\d+)", shown), re.findall(r"\bNumNodes=(\d+)", shown)
    if "JobState=" not in shown or len(count) != 1 or not int(count[0]):
        return None
    return int(total[0]) // int(count[0]) if total else 0
