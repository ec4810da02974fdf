"""Node hours of a run, and their price with the energy's, if the configuration states prices."""

from collections.abc import Sequence

from aiperf.config.settings import PriceSection
from analysis.reading.run_data import RunData
from analysis.report.energy.parts import J_PER_KWH, EnergyPart
from analysis.report.estimates import CostPart
from analysis.report.model import ReplicaPart

S_PER_HOUR = 3600


def price_of(price: PriceSection, node_seconds: float, joules: float | None) -> float | None:
    """Price of nodes for a time, and of their energy, in the stated currency.

    node seconds x `price.node_hour` / 3600 + joules x `price.kwh` / 3.6e6. None if a price is not
    stated, or if energy has a price and was not measured.
    """
    if price.node_hour is None or price.kwh is None or (joules is None and price.kwh > 0):
        return None
    return node_seconds * price.node_hour / S_PER_HOUR + (joules or 0.0) * price.kwh / J_PER_KWH


def cost_part(data: RunData, replicas: Sequence[ReplicaPart], energy: EnergyPart) -> CostPart | None:
    """The part of the report; None if the run never started."""
    if data.start_ms is None:
        return None
    nodes, price = _nodes(data, replicas), data.manifest.config.price
    seconds = nodes * data.duration_ms / 1000
    whole = nodes > 0 and energy.hosts_measured >= max(nodes, energy.hosts)
    joules = energy.sensors_j if whole else None
    if energy.metered is not None:
        joules = energy.metered.joules
    return CostPart(
        nodes=nodes,
        node_hours=seconds / S_PER_HOUR,
        amount=price_of(price, seconds, joules),
        currency=price.currency,
        source=price.source,
    )


def _nodes(data: RunData, replicas: Sequence[ReplicaPart]) -> int:
    """Nodes of the replicas that took part; one that several share counts once."""
    came = [part for part in replicas if part.ranks]
    each = data.manifest.config.replica.nodes
    return each * len(came) if each > 1 else len({part.node or part.replica for part in came})
