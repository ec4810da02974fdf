"""Variables by which starters number the ranks of a job: read in one place, and never handed down.

A process that a site's `srun` or `mpirun` has started has numbers of its own. The ranks that it
starts in turn would take them for theirs, so every program is started without them.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

ADDRESS, PORT = "MASTER_ADDR", "MASTER_PORT"
"""Variables with the place where the ranks meet: rank 0 listens there."""

FIRST_LOCAL_RANK = "AIPERF_FIRST_LOCAL_RANK"
"""Variable with the ranks that other groups of a hybrid training have on this node before ours."""

RANK, SIZE, LOCAL_RANK = "RANK", "WORLD_SIZE", "LOCAL_RANK"
"""The variables of torchrun, which the starter `processes` sets."""

_NAMES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK"),
    (RANK, SIZE, LOCAL_RANK),
)
"""Environment variables of the rank starters mpirun, horovodrun and processes."""

_OF_RANKS = (
    "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_SIZE", "OMPI_APP_CTX_", "OMPI_NUM_APP_CTX", "OMPI_FIRST_RANKS", "OMPI_ARGV",
    "OMPI_COMMAND", "OMPI_FILE_LOCATION", "OMPI_MCA_ess", "OMPI_MCA_orte_", "OMPI_MCA_pmix", "OMPI_MCA_initial_wdir",
    "PMIX_", "PRTE_", "PMI_", "PMI1_", "PMI2_", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_",
    "MVP_COMM_WORLD_", "HYDI_",
    "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_", "HOROVOD_CROSS_", "HOROVOD_HOSTNAME", "HOROVOD_GLOO_RENDEZVOUS_",
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_TASK_PID", "SLURM_MPI_TYPE", "SLURM_PMI",
    "FLUX_TASK_", "PALS_", "JSM_", "ALPS_APP_PE", "TORCHELASTIC_", "ROLE_RANK", "ROLE_WORLD_SIZE", "GROUP_RANK",
    "GROUP_WORLD_SIZE",
)  # fmt: skip
"""Beginnings of names. PRTE, PMIX and Hydra are those that MPI and schedulers start ranks by."""

_NAMED = frozenset({RANK, SIZE, LOCAL_RANK, "LOCAL_WORLD_SIZE", "NODE_RANK", ADDRESS, PORT, FIRST_LOCAL_RANK})

_SETTINGS = ("PMIX_MCA_", "PRTE_MCA_")
"""Beginnings of names by which sites and users set up MPI."""


@dataclass(frozen=True, slots=True)
class RankNumbers:
    """The numbers of one rank of several."""

    rank: int
    size: int
    local_rank: int


def rank_numbers(environment: Mapping[str, str] = os.environ) -> RankNumbers | None:
    """The numbers that a rank starter has given this process; None: it has given none."""
    names = next((names for names in _NAMES if names[0] in environment), None)
    if names is None:
        return None
    rank, size, local_rank = (int(environment.get(name, "0")) for name in names)
    return RankNumbers(rank, size, local_rank + first_local_rank(environment))


def first_local_rank(environment: Mapping[str, str] = os.environ) -> int:
    """Number of ranks that other groups of the training have on this node before this group's."""
    return int(environment.get(FIRST_LOCAL_RANK, "0"))


def without_ranks(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment for a program that is not a rank of this process's job."""
    return {name: value for name, value in environment.items() if not _is_of_ranks(name)}


def _is_of_ranks(name: str) -> bool:
    return name in _NAMED or (name.startswith(_OF_RANKS) and not name.startswith(_SETTINGS))
