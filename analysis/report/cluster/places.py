"""Node, CPUs and memory domains of every rank as it ran, next to what it was to use."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_

from aiperf.cli.units import count
from aiperf.facts import CPU_LIST, RankPlace
from aiperf.host import mask_of, ranges
from analysis.reading.run_data import RunData
from analysis.report.estimates import PlacePart

Places = tuple[RankPlace, ...]


def place_parts(data: RunData) -> tuple[PlacePart, ...]:
    """The places of each replica's last training that recorded them, the remarkable ones first.

    Each rank may use all CPUs that its agent may use, or those of them at its accelerator
    (`near_cpus`); anything else is remarkable.
    """
    every = _trainings(data)
    last = {replica: places[-1] for replica, places in every.items()}
    nodes: dict[str, Counter[int]] = defaultdict(Counter)
    for place in (place for places in last.values() for place in places):
        nodes[place.node][mask_of(place.cpus)] += 1
    found = [
        part for replica, places in sorted(last.items()) for part in _of_replica(data, replica, every[replica], nodes)
    ]
    return tuple(sorted(found, key=lambda part: not (part.remark or part.elsewhere)))


def cpus_of_ranks(data: RunData) -> dict[int, int]:
    """CPUs of the agent's node that each replica's ranks may use together, if they were recorded.

    Ranks that stay at their accelerators use as many as if they did not: they leave none idle.
    """
    found: dict[int, int] = {}
    for replica, every in _trainings(data).items():
        host, near = _host(data, replica), _near(data, replica)
        masks = {mask_of(place.cpus) for place in every[-1] if place.node == host}
        if masks and not masks & near:
            found[replica] = reduce(or_, masks).bit_count()
    return {replica: count for replica, count in found.items() if count}


def _host(data: RunData, replica: int) -> str | None:
    facts = data.system.get(str(replica))
    return facts.host if facts is not None else None


def _trainings(data: RunData) -> dict[int, list[Places]]:
    """The places of each replica's trainings, in order."""
    found: dict[int, list[Places]] = defaultdict(list)
    for _, entry in sorted(data.ledger.trials.items()):
        if entry.built is not None and entry.begun is not None and entry.built.places:
            found[entry.begun.replica].append(entry.built.places)
    return found


MOST_LISTS = 64
"""Lists of CPUs in a fact that are read; processors have fewer memory domains."""


def _recorded(data: RunData, replica: int, fact: str) -> list[int]:
    """The lists of CPUs in a fact of a replica's node; none if it has none, or something else."""
    facts = data.system.get(str(replica))
    text = facts.as_recorded().get(fact) if facts is not None else None
    lists = text.split("; ", MOST_LISTS) if isinstance(text, str) else []
    known = len(lists) <= MOST_LISTS and all(re.fullmatch(CPU_LIST, each) for each in lists)
    return [mask_of(each) for each in lists] if known else []


def _asked(data: RunData, replica: int) -> int:
    """The CPUs that the agent of a replica may use; 0: unknown."""
    found = _recorded(data, replica, "cpu_affinity")
    return found[0] if len(found) == 1 else 0


def _near(data: RunData, replica: int) -> frozenset[int]:
    """The CPUs at each of the node's accelerators, of those that an agent may use.

    None if others are left: then ranks do not stay at their accelerators.
    """
    asked = _asked(data, replica)
    found = frozenset(mask & asked for mask in _recorded(data, replica, "accelerator_cpus"))
    return found - {0, asked} if reduce(or_, found, 0) == asked else frozenset()


def _of_replica(
    data: RunData, replica: int, trainings: Sequence[Places], nodes: dict[str, Counter[int]]
) -> Iterator[PlacePart]:
    asked, near = _asked(data, replica), _near(data, replica)
    ranks: dict[RankPlace, list[int]] = defaultdict(list)
    for rank, place in enumerate(trainings[-1]):
        ranks[place].append(rank)
    for place, own in ranks.items():
        mask = mask_of(place.cpus)
        # One of those is the rank itself.
        sharing = sum(number for other, number in nodes[place.node].items() if other & mask) - 1
        # An agent says nothing of the CPUs of further nodes.
        is_as_asked = place.node != _host(data, replica) or mask in near
        yield PlacePart(
            replica=replica,
            ranks=ranges(frozenset(own)),
            node=place.node,
            cpus=place.cpus,
            cpu_count=mask.bit_count(),
            domains=place.domains,
            sharing=max(0, sharing),
            elsewhere=sum(places != trainings[-1] for places in trainings),
            remark="" if is_as_asked else _remark(mask, asked, sharing),
        )


def _remark(mask: int, asked: int, sharing: int) -> str:
    """The difference from the CPUs of the agent, in words; empty if there is none."""
    if not asked or not mask or mask == asked:
        return ""
    outside, others = (mask & ~asked).bit_count(), count(sharing, "other rank")
    bound = f"bound to {mask.bit_count()} of the {asked.bit_count()} CPUs of its agent"
    words = f"{outside} of its CPUs are not among those of its agent" if outside else bound
    return f"{words}; {others} may use them, too" if sharing > 0 else words


def ranks_of(parts: Sequence[PlacePart]) -> int:
    """Number of the ranks."""
    return sum(mask_of(part.ranks).bit_count() for part in parts)
