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

    Ranks are started unbound: each may use all CPUs that its agent may use.
    """
    every = _trainings(data)
    last = {replica: places[-1] for replica, places in every.items()}
    nodes: dict[str, Counter[int]] = defaultdict(Counter)
    for place in (place for places in last.values() for place in places):
        nodes[place.node][mask_of(place.cpus)] += 1
    found = [
        part
        for replica, places in sorted(last.items())
        for part in _of_replica(replica, every[replica], nodes, _asked(data, replica))
    ]
    return tuple(sorted(found, key=lambda part: not (part.remark or part.elsewhere)))


def cpus_of_ranks(data: RunData) -> dict[int, int]:
    """CPUs of each replica's ranks together, on its agent's node, if they were recorded."""
    hosts = {replica: facts.host for replica, facts in data.system.items()}
    found = {
        replica: reduce(or_, (mask_of(place.cpus) for place in every[-1] if place.node == hosts.get(str(replica))), 0)
        for replica, every in _trainings(data).items()
    }
    return {replica: mask.bit_count() for replica, mask in found.items() if mask}


def _trainings(data: RunData) -> dict[int, list[Places]]:
    """The places of each replica's trainings, in order."""
    found: dict[int, list[Places]] = defaultdict(list)
    for _, entry in sorted(data.ledger.trials.items()):
        if entry.built is not None and entry.begun is not None and entry.built.places:
            found[entry.begun.replica].append(entry.built.places)
    return found


def _asked(data: RunData, replica: int) -> dict[str, int]:
    """The CPUs that the agent of a replica may use, on its node; it says nothing of others."""
    facts = data.system.get(str(replica))
    cpus = facts.as_recorded().get("cpu_affinity") if facts is not None else None
    if facts is None or facts.host is None or not isinstance(cpus, str) or not re.fullmatch(CPU_LIST, cpus):
        return {}
    return {facts.host: mask_of(cpus)}


def _of_replica(
    replica: int, trainings: Sequence[Places], nodes: dict[str, Counter[int]], asked: dict[str, int]
) -> Iterator[PlacePart]:
    ranks: dict[RankPlace, list[int]] = defaultdict(list)
    for rank, place in enumerate(trainings[-1]):
        ranks[place].append(rank)
    for place, own in ranks.items():
        mask = mask_of(place.cpus)
        # One of those is the rank itself.
        sharing = sum(number for other, number in nodes[place.node].items() if other & mask) - 1
        yield PlacePart(
            replica=replica,
            ranks=ranges(frozenset(own)),
            node=place.node,
            cpus=place.cpus,
            cpu_count=mask.bit_count(),
            domains=place.domains,
            sharing=max(0, sharing),
            elsewhere=sum(places != trainings[-1] for places in trainings),
            remark=_remark(mask, asked.get(place.node), sharing),
        )


def _remark(mask: int, asked: int | None, sharing: int) -> str:
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
