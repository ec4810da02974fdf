"""Ranks started by Open MPI's `mpirun`: on one node, or on several by SLURM or ssh."""

import os
import re

from replica.trainer.settings import framework_variables
from replica.trainer.starters.contract import RankRequest

HOROVOD = {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}

OF_A_NODE = ("_VISIBLE_DEVICES", "_AFFINITY_MASK", "_DEVICE_SELECTOR")
"""Ends of the variables that choose devices, which may name those of this node alone."""

YIELD = ("--mca", "mpi_yield_when_idle", "1")
"""Setting by which waiting ranks, which poll, yield to ranks that compute on the same cores, such
as those of the other trial."""


_KILLED = re.compile(r"mpirun noticed that process (rank \d+) .*? exited on (signal \d+[^.\n]*)", re.DOTALL)


def lost_rank(log: str) -> str | None:
    """Find mpirun's words on a rank that was killed, after which it ends all others; else None."""
    found = _KILLED.search(log)
    return f"{found[1]} ended with {' '.join(found[2].split())}" if found is not None else None


def _unless_set(parameter: str, value: str) -> tuple[str, ...]:
    """The words that set a parameter of Open MPI; none if the environment has chosen its value."""
    return () if f"OMPI_MCA_{parameter}" in os.environ else ("--mca", parameter, value)


def start_with_mpirun(request: RankRequest) -> list[str]:
    """Start one rank a slot, unbound: the trainer sets the threads of a rank, not MPI.

    `mpirun` itself hands few variables to other nodes; ranks that differ in those of a framework or
    its libraries would compute or talk in different ways.
    """
    hosts = request.hosts or ("localhost",)
    interface = request.interface or (None if request.hosts else "lo")
    names = dict.fromkeys(["PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", *request.environment])
    names |= dict.fromkeys(
        name for name in framework_variables() if name not in HOROVOD and not name.endswith(OF_A_NODE)
    )
    return [
        "mpirun",
        *(("--allow-run-as-root",) if os.geteuid() == 0 else ()),
        "--np",
        str(request.ranks),
        "--host",
        ",".join(f"{host}:{request.ranks_per_host}" for host in hosts),
        "--map-by",
        "slot",
        "--bind-to",
        "none",
        *_unless_set("pml", "ob1"),
        *YIELD,
        *_unless_set("btl", "self,vader,tcp" if not request.hosts else "self,tcp"),
        *(("--mca", "btl_tcp_if_include", interface, "--mca", "oob_tcp_if_include", interface) if interface else ()),
        *(word for name, value in HOROVOD.items() for word in ("-x", f"{name}={value}")),
        *(word for name in names if name in os.environ or name in request.environment for word in ("-x", name)),
        *request.command,
    ]
