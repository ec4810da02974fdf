"""Canned environments of schedulers' jobs, and the stand-ins for their remote starters."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.folders import ROOT

STARTERS = ROOT / "tests" / "support" / "hosts" / "starters"

MARKS = ("FLUX_URI", "FLUX_JOB_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE")
"""The variables by which allocations are found."""

Environment = dict[str, str]


def pbs(folder: Path, hosts: Sequence[str]) -> Environment:
    """As of `qsub -l select=N:ncpus=64:mpiprocs=2:ngpus=8`: a line for each MPI process."""
    nodes = folder / "123.pbs01"
    nodes.write_text("".join(f"{host}\n" * 2 for host in hosts))
    return {
        "PBS_JOBID": "123.pbs01",
        "PBS_NODEFILE": str(nodes),
        "PBS_ENVIRONMENT": "PBS_BATCH",
        "PBS_NODENUM": "0",
        "PBS_O_WORKDIR": str(folder),
        "NCPUS": "64",
    }


def lsf(folder: Path, hosts: Sequence[str]) -> Environment:
    """As of `bsub -n 16N -R 'span[ptile=16]'`."""
    listed = folder / "4711.hostfile"
    listed.write_text("".join(f"{host}\n" * 16 for host in hosts))
    return {
        "LSB_JOBID": "4711",
        "LSB_MCPU_HOSTS": " ".join(f"{host} 16" for host in hosts) + " ",
        "LSB_HOSTS": " ".join(host for host in hosts for _ in range(16)),
        "LSB_DJOB_HOSTFILE": str(listed),
        "LSB_DJOB_NUMPROC": str(16 * len(hosts)),
    }


def grid_engine(folder: Path, hosts: Sequence[str]) -> Environment:
    """As of `qsub -pe mpi 32N` with two queues that give slots on every host."""
    listed = folder / "pe_hostfile"
    queues = (("all.q", 24), ("gpu.q", 8))
    listed.write_text(
        "".join(f"{host} {slots} {queue}@{host} UNDEFINED\n" for host in hosts for queue, slots in queues)
    )
    return {
        "JOB_ID": "77",
        "PE": "mpi",
        "PE_HOSTFILE": str(listed),
        "NHOSTS": str(len(hosts)),
        "NSLOTS": str(32 * len(hosts)),
        "SGE_ROOT": "/opt/sge",
    }


def flux(_: Path, hosts: Sequence[str]) -> Environment:
    """As of `flux batch -N`."""
    resources = flux_resources(",".join(hosts), {f"0-{len(hosts) - 1}": (128, 8)})
    return {"FLUX_URI": "local:///run/flux/local", "FLUX_ENCLOSING_ID": "f2xyzABC", "STANDIN_RESOURCES": resources}


def flux_resources(nodes: str, ranks: Mapping[str, tuple[int, int]]) -> str:
    """What `flux resource R` prints (RFC 20) of hosts, with cores and GPUs by ranks."""
    parts = [
        {"rank": rank, "children": {"core": f"0-{cores - 1}", **({"gpu": f"0-{gpus - 1}"} if gpus else {})}}
        for rank, (cores, gpus) in ranks.items()
    ]
    execution = {"R_lite": parts, "starttime": 0.0, "expiration": 0.0, "nodelist": [nodes]}
    return json.dumps({"version": 1, "execution": execution})


def slurm(_: Path, hosts: Sequence[str]) -> Environment:
    """As of `sbatch --nodes=N --gpus-per-node=a100:8`."""
    return {
        "SLURM_JOB_ID": "17",
        "SLURM_JOB_NODELIST": ",".join(hosts),
        "SLURM_GPUS_PER_NODE": "a100:8",
        "SLURM_JOB_CPUS_PER_NODE": f"64(x{len(hosts)})",
    }


CANNED: dict[str, Callable[[Path, Sequence[str]], Environment]] = {
    "Flux": flux,
    "SLURM": slurm,
    "PBS": pbs,
    "LSF": lsf,
    "Grid Engine": grid_engine,
}
"""By scheduler: the variables of a job on these hosts, whose files are in the folder."""


def job_of(scheduler: str, folder: Path, hosts: Sequence[str]) -> Environment:
    """The variables of a job, with its scheduler's stand-in on the PATH."""
    folder.mkdir(exist_ok=True)
    programs = STARTERS / scheduler.lower().replace(" ", "_")
    return {
        **CANNED[scheduler](folder, hosts),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "STANDIN_CALLS": str(folder / "calls"),
    }


def answering_job(scheduler: str, folder: Path, program: str, answer: str) -> Environment:
    """The variables of a job of two hosts, and its scheduler's program with a canned answer."""
    environment = job_of(scheduler, folder / "job", ("a", "b"))
    file, text = folder / "bin" / program, folder / "text"
    file.parent.mkdir()
    text.write_text(answer)
    others = environment["PATH"].split(os.pathsep)[0]
    file.write_text(
        f'#!/bin/sh\n[ "$1" = resource ] && exec {others}/flux "$@"\n[ "$LC_ALL" = C ] && exec cat {text}\n'
    )
    file.chmod(0o755)
    return {**environment, "PATH": f"{file.parent}{os.pathsep}{environment['PATH']}"}


def enter(patch: pytest.MonkeyPatch, environment: Environment) -> None:
    """Let this process and its children be in a job, and in no other."""
    for name in MARKS:
        patch.delenv(name, raising=False)
    for name, value in environment.items():
        patch.setenv(name, value)
