"""Command lines of srun, salloc, squeue and scancel as pure functions, and the environment that they see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiperf.config.sections import SlurmSection

INFLUENCES = ("SLURM_", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SINFO_", "SCANCEL_", "OMPI_", "PMIX_")
"""Variables by which SLURM's commands take options that nobody sees."""

KEPT = frozenset({"SLURM_CONF"})

HOSTS_OF_JOB = """exec "$@" --hosts "$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd,)\""""
"""Inside a job of its own: tell the command which nodes the job has."""


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which nothing but the command line tells SLURM's commands what to do."""
    return {name: value for name, value in environment.items() if name in KEPT or not name.startswith(INFLUENCES)}


def step_in_allocation(job: str, name: str, nodes: Sequence[str], command: Sequence[str]) -> list[str]:
    """One task on the first of `nodes`, which all belong to the allocation `job`."""
    told = ("--hosts", ",".join(nodes)) if len(nodes) > 1 else ()
    return ["srun", f"--jobid={job}", f"--nodelist={nodes[0]}", *_one_task(name), *command, *told]


def steps_of_mpirun(name: str) -> dict[str, str]:
    """What a step of this name hands on to the srun of an mpirun inside of it.

    The ranks of further nodes are steps beside it, and have its name, by which they are found.
    """
    return {"SLURM_OVERLAP": "1", "OMPI_MCA_plm_slurm_args": f"--job-name={name}"}


def job_of_its_own(settings: SlurmSection, name: str, nodes: int, command: Sequence[str]) -> list[str]:
    """An allocation of `nodes` nodes, which may wait in the queue, and one task on its first node."""
    several = ("bash", "-c", HOSTS_OF_JOB, "bash") if nodes > 1 else ()
    allocate = ["salloc", f"--job-name={name}", f"--nodes={nodes}", *resource_options(settings)]
    return [*allocate, "srun", *_one_task(name), *several, *command]


def resource_options(settings: SlurmSection) -> list[str]:
    """What a job asks for, for salloc and sbatch alike."""
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
    # A node that fails must not take the replicas on other nodes with it.
    return [*options, *(("--exclusive",) if settings.exclusive else ()), "--no-kill", *settings.options]


def _one_task(name: str) -> tuple[str, ...]:
    # Overlapping: several replicas may share a node, and the ranks of several nodes are steps beside the agent's.
    return (
        "--nodes=1", "--ntasks=1", f"--job-name={name}", "--overlap", "--cpu-bind=none", "--mem=0",
        "--kill-on-bad-exit=1", "--export=ALL",
    )  # fmt: skip
