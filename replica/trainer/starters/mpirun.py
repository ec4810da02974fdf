"""Ranks started by Open MPI's `mpirun`: on one node, or on several by SLURM or ssh."""

from __future__ import annotations

import os

from replica.trainer.starters.contract import RankRequest

HOROVOD = {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}

YIELD = ("--mca", "mpi_yield_when_idle", "1")
"""Waiting ranks poll.

They must yield to ranks that compute on the same cores, such as the next trial's.
"""


def start_with_mpirun(request: RankRequest) -> list[str]:
    """Start one rank a slot, unbound: the trainer sets the threads of a rank, not MPI."""
    hosts = request.hosts or ("localhost",)
    interface = request.interface or (None if request.hosts else "lo")
    variables = ["PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", *request.environment]
    return [
        "mpirun",
        *(("--allow-run-as-root",) if os.geteuid() == 0 else ()),
        "--np", str(request.ranks),
        "--host", ",".join(f"{host}:{request.ranks_per_host}" for host in hosts),
        "--map-by", "slot",
        "--bind-to", "none",
        "--mca", "pml", "ob1",
        *YIELD,
        "--mca", "btl", "self,vader,tcp" if not request.hosts else "self,tcp",
        *(("--mca", "btl_tcp_if_include", interface, "--mca", "oob_tcp_if_include", interface) if interface else ()),
        *(word for name, value in HOROVOD.items() for word in ("-x", f"{name}={value}")),
        *(word for name in variables if name in os.environ or name in request.environment for word in ("-x", name)),
        *request.command,
    ]  # fmt: skip
