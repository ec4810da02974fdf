"""Allocations of LSF."""

from collections import Counter
from collections.abc import Mapping

from primary.allocations.contract import Allocation, lines_of, unusable


def find_lsf(environment: Mapping[str, str]) -> Allocation | None:
    """The job of LSB_JOBID, with its hosts and their slots."""
    job = environment.get("LSB_JOBID", "")
    if not job:
        return None
    title = f"LSF job {job}"
    slots = _slots(environment, title)
    first, *others = slots
    if "CSM_ALLOCATION_ID" in environment and others and slots[first] == 1:
        # With the Cluster System Management the script runs on a launch node, which trains nothing.
        del slots[first]
    return Allocation("LSF", job, tuple(slots), cpus=tuple(slots.values()))


def _slots(environment: Mapping[str, str], title: str) -> dict[str, int]:
    """Slots by host: from pairs in one variable, else from a file with one line for each slot."""
    words = environment.get("LSB_MCPU_HOSTS", "").split()
    if not words:
        return dict(Counter(lines_of("LSB_DJOB_HOSTFILE", environment, title)))
    slots: Counter[str] = Counter()
    for host, count in zip(words[::2], [*words[1::2], ""], strict=False):
        if not count.isdigit():
            raise unusable(title, f"LSB_MCPU_HOSTS has {count!r} after {host}; expected pairs of a host and its slots")
        slots[host] += int(count)
    return dict(slots)
