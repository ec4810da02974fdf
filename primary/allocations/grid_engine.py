"""Allocations of Grid Engine (Altair, Univa, Son of, Open): jobs with a parallel environment."""

from collections import Counter
from collections.abc import Mapping

from primary.allocations.contract import Allocation, lines_of, unusable


def find_grid_engine(environment: Mapping[str, str]) -> Allocation | None:
    """The job of JOB_ID. A host has a line for each queue that it gives slots from."""
    if "PE_HOSTFILE" not in environment:
        return None
    job = environment.get("JOB_ID", "")
    title = f"Grid Engine job {job}"
    slots: Counter[str] = Counter()
    for line in lines_of("PE_HOSTFILE", environment, title):
        host, count, *_ = [*line.split(), ""]
        if not count.isdigit():
            raise unusable(
                title, f"PE_HOSTFILE has the line {line!r}; expected host, slots, queue and range of processors"
            )
        slots[host] += int(count)
    return Allocation("Grid Engine", job, tuple(slots), cpus=tuple(slots.values()))
