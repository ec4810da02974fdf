"""The accelerators of a run, from what its nodes said of themselves: ranks are counted apart."""

from __future__ import annotations

import numpy as np

from analysis.reading.run_data import RunData


def count_devices(data: RunData) -> int:
    """Devices of all nodes of the run.

    Replicas on one node see the same devices, which count once. A replica of several nodes
    describes the first; the others are taken to be equal. If no node described itself, telemetry
    says how many devices it sampled.
    """
    hosts: dict[str, int] = {}
    for replica, facts in data.system.items():
        host = facts.host or f"replica {replica}"
        hosts[host] = max(hosts.get(host, 0), facts.accelerators or 0)
    if hosts:
        return data.manifest.config.replica.nodes * sum(hosts.values())
    return sum(int(np.nanmax(node.column("accelerators"), initial=0.0)) for node in data.telemetry.nodes)


def devices_of(data: RunData, replica: int) -> int:
    """Devices of one replica: its share of its nodes', at least one if they have any."""
    facts = data.system.get(str(replica))
    if facts is None or not facts.accelerators:
        return 0
    config = data.manifest.config
    share = config.run.replicas if config.run.launcher == "local" else config.replica.per_node
    own = len(range(replica % share, facts.accelerators, share))
    return config.replica.nodes * max(1, own)
