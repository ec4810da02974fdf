"""Allocations of PBS Pro and OpenPBS, and of Torque, which has the same variables."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from primary.allocations.contract import Allocation, lines_of, unusable


def find_pbs(environment: Mapping[str, str]) -> Allocation | None:
    """The job of PBS_JOBID. Its node file has one line for each MPI process, not for each CPU."""
    job = environment.get("PBS_JOBID", "")
    if not job:
        return None
    title = f"PBS job {job}"
    entries = lines_of("PBS_NODEFILE", environment, title)
    if broken := next((line for line in entries if len(line.split()) > 1), None):
        raise unusable(title, f"PBS_NODEFILE has the line {broken!r}; expected one host name")
    return Allocation("PBS", job, tuple(entries), gpus=_gpus(environment, tuple(dict.fromkeys(entries))))


def _gpus(environment: Mapping[str, str], hosts: tuple[str, ...]) -> tuple[int, ...]:
    """Torque lists GPUs as `host-gpu0`; PBS Pro says nothing about the other hosts' GPUs."""
    try:
        lines = Path(environment["PBS_GPUFILE"]).read_text(encoding="utf-8").split()
    except (KeyError, OSError, ValueError):
        return ()
    counts = Counter(line.rpartition("-gpu")[0] for line in lines)
    return tuple(counts[host] for host in hosts) if counts else ()
