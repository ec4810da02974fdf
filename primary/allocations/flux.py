"""Allocations of Flux: the instance that `flux batch` and `flux alloc` start for a job."""

from collections.abc import Mapping

import msgspec

from aiperf.answers import ask_and_wait
from aiperf.errors import UsageError
from primary.allocations.contract import Allocation, unusable
from slurm.hostlists import expand

QUERY = ("flux", "resource", "R")
QUERY_TIMEOUT_S = 30.0
KINDS = ("core", "gpu")
MOST_NUMBERS = 10**6
"""Upper limit for numbers of cores and of hosts: more than any machine has."""


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
        found = _RESOURCES.decode(shown)
        hosts = tuple(host for names in found.execution.nodelist for host in expand(names))
        ranks = {rank: each.children for each in found.execution.R_lite for rank in _numbers(each.rank)}
        cpus, gpus = (tuple(len(_numbers(ranks[rank].get(kind, ""))) for rank in sorted(ranks)) for kind in KINDS)
    except (ValueError, UsageError) as error:
        raise unusable(title, f"`{' '.join(QUERY)}` printed {shown[:200]!r}: {error}") from None
    if not hosts or len(hosts) != len(ranks):
        raise unusable(title, f"`{' '.join(QUERY)}` printed {shown[:200]!r}: its hosts are not {len(ranks)}")
    return Allocation("Flux", job, hosts, cpus, gpus)


class _OfRanks(msgspec.Struct):
    """Resources of some brokers' hosts: kinds with their numbers, as `0-3,8`."""

    rank: str
    children: dict[str, str]


class _Execution(msgspec.Struct):
    R_lite: list[_OfRanks]
    nodelist: list[str]
    """Hosts in the order of their ranks."""


class _Resources(msgspec.Struct):
    """A resource set of Flux (RFC 20)."""

    execution: _Execution


_RESOURCES = msgspec.json.Decoder(_Resources)


def _numbers(text: str) -> list[int]:
    """The numbers of `0-3,8`. Raises ValueError."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
        if len(found) > MOST_NUMBERS:
            raise ValueError(f"more than {MOST_NUMBERS} numbers")
    return found


def _ask(environment: Mapping[str, str], title: str) -> str:
    answer = ask_and_wait(QUERY, QUERY_TIMEOUT_S, environment)
    if answer.code is None:
        raise unusable(title, f"`{' '.join(QUERY)}` gives no answer: {answer.reason}")
    if not answer.fine:
        raise unusable(title, f"`{' '.join(QUERY)}` failed: {answer.reason}")
    return answer.output.strip()
