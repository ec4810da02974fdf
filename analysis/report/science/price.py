"""Energy and cost of a model until a moment, of the nodes of the replicas that trained it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from analysis.reading.integrity.view import replica_of
from analysis.reading.run_data import RunData
from analysis.reading.telemetry import NodeSeries
from analysis.report.science.models import Model

S_PER_HOUR = 3600
J_PER_KWH = 3.6e6


def cost(data: RunData, seconds: float, joules: float | None) -> float | None:
    """Price of the nodes of a replica for a time, and of their energy, in the stated currency.

    seconds x nodes x `price.node_hour` / 3600 + joules x `price.kwh` / 3.6e6. None if a price is
    not stated, or if energy has a price and was not measured.
    """
    price, nodes = data.manifest.config.price, data.manifest.config.replica.nodes
    if price.node_hour is None or price.kwh is None or (joules is None and price.kwh > 0):
        return None
    return seconds * nodes * price.node_hour / S_PER_HOUR + (joules or 0.0) * price.kwh / J_PER_KWH


def joules_until(data: RunData, model: Model, end_ms: int) -> float | None:
    """Joules of the nodes that trained a model, from its first job to a moment.

    After an interruption they are those of the former replica until the next job is issued. None if
    any node does not report its energy.
    """
    total = 0.0
    for replica, begin_ms, until_ms in _turns(model, end_ms):
        nodes = _nodes(data, replica)
        found = [_joules(node, begin_ms, until_ms) for node in nodes]
        known = [value for value in found if value is not None]
        if len(known) < max(len(found), data.manifest.config.replica.nodes):
            return None
        total += sum(known)
    return total


def _turns(model: Model, end_ms: int) -> Iterator[tuple[int, int, int]]:
    """Replica, beginning and end of each of its turns with the model."""
    issued = [
        (trial.issued_ms, trial.issued.replica)
        for trial in model.trials
        if trial.issued is not None and trial.issued_ms is not None and trial.issued_ms <= end_ms
    ]
    for (begin_ms, replica), (until_ms, _) in pairwise([*sorted(issued), (end_ms, -1)]):
        yield replica, begin_ms, until_ms


def _nodes(data: RunData, replica: int) -> list[NodeSeries]:
    """The sampled nodes of a replica."""
    return [node for node in data.telemetry.nodes if any(replica_of(name) == replica for name in node.writers)]


def _joules(node: NodeSeries, begin_ms: int, end_ms: int) -> float | None:
    """Joules of a node's accelerators and CPU packages, between samples in proportion to time.

    None if it reports neither, has accelerators that do not report, or has no sample of the time.
    """
    times = node.column("time_ms")
    if not len(times) or times[0] > end_ms or times[-1] < begin_ms:
        return None
    span = np.array([begin_ms, end_ms], dtype=np.float64)
    accelerators, cpus = node.accelerator_energy(span), node.cpu_energy(span)
    if accelerators is None and (cpus is None or np.nanmax(node.column("accelerators"), initial=0.0) > 0):
        return None
    return float(sum(part[1] - part[0] for part in (accelerators, cpus) if part is not None))
