"""Allocations of Flux: the instance that `flux batch` and `flux alloc` start for a job."""

from __future__ import annotations

from collections.abc import Mapping

from aiperf.answers import ask_and_wait
from aiperf.errors import UsageError
from primary.allocations.contract import Allocation, unusable
from slurm.hostlists import expand

QUERY = ("flux", "resource", "list", "--states=all", "--no-header", "--format={nnodes} {ncores} {ngpus} {nodelist}")
QUERY_TIMEOUT_S = 30.0


def find_flux(environment: Mapping[str, str]) -> Allocation | None:
    """The instance at FLUX_URI.

    None in a task of `flux run`, whose instance belongs to others too.
    """
    if not environment.get("FLUX_URI") or environment.get("FLUX_JOB_ID"):
        return None
    job = environment.get("FLUX_ENCLOSING_ID", "")
    title = f"Flux job {job}".rstrip()
    shown = _ask(environment, title)
    try:
        nodes, cores, gpus, names = shown.split()
        hosts = expand(names)
        counts = int(nodes), int(cores), int(gpus)
    except (ValueError, UsageError):
        raise unusable(title, f"`flux resource list` printed {shown!r}; expected nodes, cores, GPUs, hosts") from None
    if not hosts or len(hosts) != counts[0]:
        raise unusable(title, f"`flux resource list` printed {shown!r}: its hosts are not {nodes}")
    cpus_per_host, gpus_per_host = (_evenly(count, counts[0]) for count in counts[1:])
    return Allocation("Flux", job, hosts, cpus_per_host, gpus_per_host)


def _evenly(total: int, hosts: int) -> int | None:
    return total // hosts if total % hosts == 0 else None


def _ask(environment: Mapping[str, str], title: str) -> str:
    answer = ask_and_wait(QUERY, QUERY_TIMEOUT_S, environment)
    if answer.code is None:
        raise unusable(title, f"`flux resource list` gives no answer: {answer.reason}")
    if not answer.fine:
        raise unusable(title, f"`flux resource list` failed: {answer.reason}")
    return answer.output.strip()
