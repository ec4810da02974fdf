"""Command lines of srun, salloc, squeue and scancel, and their environment: pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiperf.config.sections import SlurmSection

INFLUENCES = ("SLURM_", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SINFO_", "SCANCEL_", "OMPI_", "PMIX_")
"""Prefixes of variables that set options of SLURM's commands invisibly."""

KEPT = frozenset({"SLURM_CONF"})

HOSTS_OF_JOB = """exec "$@" --hosts "$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd,)\""""
"""A shell command that runs another one with the nodes of its job as `--hosts`."""


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without variables that would change what SLURM's commands do."""
    return {name: value for name, value in environment.items() if name in KEPT or not name.startswith(INFLUENCES)}


def step_in_allocation(job: str, name: str, nodes: Sequence[str], command: Sequence[str]) -> list[str]:
    """One task on the first of `nodes`, which all belong to the allocation `job`."""
    further = ("--hosts", ",".join(nodes)) if len(nodes) > 1 else ()
    return ["srun", f"--jobid={job}", f"--nodelist={nodes[0]}", *_one_task(name), *command, *further]


def steps_of_mpirun(name: str) -> dict[str, str]:
    """Variables for the srun that an mpirun inside a step of this name starts.

    The ranks on further nodes are steps of their own with the same name, by which they are found.
    """
    return {"SLURM_OVERLAP": "1", "OMPI_MCA_plm_slurm_args": f"--job-name={name}"}


def job_of_its_own(settings: SlurmSection, name: str, nodes: int, command: Sequence[str]) -> list[str]:
    """An allocation of `nodes` nodes, which may wait in the queue, and a task on its first."""
    several = ("bash", "-c", HOSTS_OF_JOB, "bash") if nodes > 1 else ()
    allocate = ["salloc", f"--job-name={name}", f"--nodes={nodes}", *resource_options(settings)]
    return [*allocate, "srun", *_one_task(name), *several, *command]


def resource_options(settings: SlurmSection) -> list[str]:
    """The resources of a job as options of salloc and sbatch."""
    chosen = {
        "--partition": settings.partition,
        "--account": settings.account,
        "--qos": settings.qos,
        "--constraint": settings.constraint,
        "--reservation": settings.reservation,
        "--time": settings.time,
        "--gpus-per-node": settings.gpus_per_node,
    }
    options = [f"{option}={value}" for option, value in chosen.items() if value is not None]
    # The failure of a node must not end the replicas on other nodes.
    return [*options, *(("--exclusive",) if settings.exclusive else ()), "--no-kill", *settings.options]


def _one_task(name: str) -> tuple[str, ...]:
    # Overlapping: replicas may share a node, and ranks on further nodes are steps of their own.
    return (
        "--nodes=1", "--ntasks=1", f"--job-name={name}", "--overlap", "--cpu-bind=none", "--mem=0",
        "--kill-on-bad-exit=1", "--export=ALL",
    )  # fmt: skip
