"""Command lines of SLURM's programs, and their environment: pure functions."""

import re
from collections.abc import Mapping, Sequence

from aiperf.config.sections.cluster import SlurmSection
from aiperf.config.settings import RunConfig
from aiperf.run_directory.claim import PrimaryIdentity
from slurm.hostlists import compact, expand
from slurm.resources import NODE_FORMAT, Request, StepPart
from slurm.times import time_limit

INFLUENCES = ("SLURM_", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SINFO_", "SCANCEL_", "OMPI_", "PMIX_")
"""Prefixes of variables that starters set, or that set options of SLURM's commands invisibly."""

KEPT = frozenset({"SLURM_CONF", "SLURM_JWT"})

TUNING = ("OMPI_MCA_", "PMIX_MCA_", "PRTE_MCA_")
"""Prefixes of variables by which sites and users set up MPI."""

STARTERS_OWN = ("OMPI_MCA_ess", "OMPI_MCA_orte_", "OMPI_MCA_pmix", "OMPI_MCA_initial_wdir", "OMPI_MCA_shmem_RUNTIME")
"""Prefixes of those variables that an mpirun sets for its own ranks: to others they are wrong."""

STEP_OPTIONS = "OMPI_MCA_plm_slurm_args"

NAME_FORMAT = "%i|%j"
"""Format of squeue: id and name of a job or step."""

HOSTS_OF_JOB = """exec "$@" --hosts "$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd,)\""""
"""Shell command that runs another one with the nodes of its job as `--hosts`. Only inside of the
allocation, which may wait in the queue for long, are they known."""


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without variables that would change what SLURM's commands do."""
    return {
        name: value
        for name, value in environment.items()
        if name in KEPT
        or not name.startswith(INFLUENCES)
        or (name.startswith(TUNING) and not name.startswith(STARTERS_OWN))
    }


def step_in_allocation(
    job: str, name: str, nodes: Sequence[str], command: Sequence[str], part: StepPart | None = None
) -> list[str]:
    """The command of one task on the first of `nodes`, which all belong to the allocation `job`.

    It may use everything that the job has on the node, or its own part.
    """
    further = ("--hosts", ",".join(nodes)) if len(nodes) > 1 else ()
    return ["srun", f"--jobid={job}", f"--nodelist={nodes[0]}", *_one_task(name, part), *command, *further]


def trial_step(job: str, node: str, part: StepPart) -> list[str]:
    """The command of a step that tries a part of a node: it ends at once, or within seconds."""
    return ["srun", f"--jobid={job}", f"--nodelist={node}", "--immediate=5", *_one_task("aiperf-try", part), "true"]


def steps_of_mpirun(name: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables for the srun that an mpirun inside a step of this name starts.

    The ranks on further nodes are steps of their own with the same name, by which they are found.
    """
    options = f"{environment.get(STEP_OPTIONS, '')} --job-name={name}".lstrip()
    # mpirun's own srun takes no options of ours but by the environment. Without overlap it would
    # wait for the CPUs of the step that it is started from.
    return {"SLURM_OVERLAP": "1", "SLURM_CPU_BIND": "none", STEP_OPTIONS: options}


def job_of_its_own(config: RunConfig, request: Request, name: str, command: Sequence[str]) -> list[str]:
    """The command of an allocation for one replica, which may wait in the queue, and its task."""
    nodes = config.replica.nodes
    several = ("bash", "-c", HOSTS_OF_JOB, "bash") if nodes > 1 else ()
    allocate = ["salloc", f"--job-name={name}", f"--nodes={nodes}", *job_options(config, request)]
    return [*allocate, "srun", *_one_task(name), *several, *command]


def job_options(config: RunConfig, request: Request) -> list[str]:
    """The options of salloc and sbatch for a job's partition, time limit and resources.

    Raises UsageError if the excluded nodes are not a host list.
    """
    settings = config.slurm
    chosen = {
        "--partition": settings.partition,
        "--account": settings.account,
        "--qos": settings.qos,
        "--constraint": settings.constraint,
        "--reservation": settings.reservation,
        "--exclude": compact(expand(config.run.exclude or "")) or None,
        "--time": time_limit(config),
    }
    options = [f"{option}={value}" for option, value in chosen.items() if value is not None]
    # The failure of a node must not end the replicas on other nodes.
    return [*options, *request.options(), "--no-kill", *settings.options]


def job_name(config: RunConfig) -> str:
    """The name of a run's jobs: of the project, and of the run if it has one."""
    name = config.run.name
    safe = "".join(character if character.isalnum() or character in "-_." else "-" for character in name)
    return "aiperf" if safe == "aiperf" else f"aiperf-{safe}"


def replica_name(config: RunConfig, replica: int, identity: PrimaryIdentity) -> str:
    """The name of a replica's job or step: of its primary alone.

    squeue shows the first 8 characters.
    """
    return f"r{replica}-{job_name(config)}-{identity}"


def of_earlier(output: str, config: RunConfig, identity: PrimaryIdentity) -> list[str]:
    """The ids of jobs and steps of a run's earlier primaries, from squeue with NAME_FORMAT."""
    rows = (line.strip().partition("|") for line in output.splitlines())
    # By the run's identity, not by its name: another run of the same name is left alone.
    mine = re.compile(rf"r\d+-{re.escape(job_name(config))}-{re.escape(identity.run)}-(\d+)")
    matches = ((number, mine.fullmatch(name)) for number, _, name in rows)
    return [number for number, match in matches if match is not None and int(match[1]) < identity.number]


def size_of_nodes(settings: SlurmSection) -> list[str]:
    """A command that shows the sizes of the nodes that jobs may get."""
    partition = (f"--partition={settings.partition}",) if settings.partition else ()
    return ["sinfo", "--noheader", "--Node", f"--format={NODE_FORMAT}", *partition]


def _one_task(name: str, part: StepPart | None = None) -> tuple[str, ...]:
    # A step without a size gets all CPUs of its job on the node, and overlaps with the ranks of
    # further nodes, which are steps of their own. A part of a node overlaps with no other: SLURM
    # would give the same cores to two of them.
    how = (
        ("--overlap",)
        if part is None
        else ("--exact", f"--cpus-per-task={part.cpus}", f"--gres={f'gpu:{part.gpus}' if part.gpus else 'none'}")
    )
    return (
        "--nodes=1",
        "--ntasks=1",
        f"--job-name={name}",
        *how,
        "--cpu-bind=none",
        "--mem=0",
        "--kill-on-bad-exit=1",
        "--export=ALL",
    )
