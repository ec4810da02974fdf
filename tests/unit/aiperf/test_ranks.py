"""The numbers of ranks: read in one place, and not handed down."""

import pytest

from aiperf.ranks import FIRST_LOCAL_RANK, RankNumbers, rank_numbers, without_ranks
from replica.trainer.collectives.rank import local_rank_of

SETTINGS = {
    "OMPI_MCA_btl": "tcp",
    "OMPI_MCA_plm_slurm_args": "--x",
    "PMIX_MCA_gds": "hash",
    "HOROVOD_CYCLE_TIME": "1",
    "SLURM_JOB_ID": "7",
    "SLURM_NTASKS": "2",
    "FLUX_URI": "local:///x",
    "RANKS": "x",
}


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        (
            {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "RANK": "0"},
            RankNumbers(3, 4, 1),
        ),
        ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_RANK": "1", "RANK": "0"}, RankNumbers(1, 2, 1)),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, RankNumbers(1, 2, 1)),
        ({"PMIX_RANK": "1", "SLURM_PROCID": "5", "SLURM_NTASKS": "9"}, None),
    ],
)
def test_numbers_are_those_of_a_rank_starter(environment: dict[str, str], found: RankNumbers | None) -> None:
    assert rank_numbers(environment) == found


def test_ranks_of_a_node_count_those_of_earlier_groups() -> None:
    before = {FIRST_LOCAL_RANK: "4"}
    assert rank_numbers({**before, "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}) == RankNumbers(1, 2, 5)
    assert local_rank_of(before) == 4, "of a group of one rank, which has no numbers"


@pytest.mark.parametrize("name", [
    "PMI_RANK", "PMI_FD", "PMIX_RANK", "PMIX_NAMESPACE", "PMIX_SERVER_URI41", "OMPI_COMM_WORLD_SIZE", "OMPI_MCA_ess",
    "OMPI_MCA_orte_hnp_uri", "SLURM_PROCID", "SLURM_LOCALID", "FLUX_TASK_RANK", "PALS_RANKID", "JSM_NAMESPACE_RANK",
    "MPI_LOCALRANKID", "MV2_COMM_WORLD_RANK", "MVP_COMM_WORLD_RANK",
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "HOROVOD_RANK",
    "TORCHELASTIC_RUN_ID", "AIPERF_FIRST_LOCAL_RANK",
])  # fmt: skip
def test_numbers_of_other_jobs_are_not_handed_down(name: str) -> None:
    assert without_ranks({**SETTINGS, name: "0"}) == SETTINGS
