"""The devices of a run, from what its nodes and trainers said: ranks are counted apart."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from aiperf.machine.accelerators import numbers_of_share
from aiperf.rules.devices import DEVICES, Device, core_peak, find_device
from analysis.reading.run_data import RunData

CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Machine:
    """The devices of one replica. `host` is its first node; `count` is of all its nodes."""

    replica: int
    name: str
    """The accelerators' name in the driver, or "cpu"."""
    device: Device | None
    count: int
    host: str | None
    ranks: frozenset[str]
    """Names of the devices that its trainers computed on, as they reported; empty if none did."""

    @property
    def on_cpus(self) -> bool:
        """True if it computes on CPUs."""
        return self.name == CPU

    def peak(self, bits: int) -> float:
        """Peak operations per second of one device; if it is unknown, of the fastest known one."""
        if self.on_cpus:
            return core_peak(bits)
        own = self.device.peak(bits) if self.device is not None else None
        # A device without a known float32 peak is not faster at it than at 16 bits.
        return own or (self.device.peak_16 if self.device else max(device.peak_16 for device in DEVICES))


def machines(data: RunData) -> dict[int, Machine]:
    """The devices of every replica that described its node or whose trainers reported theirs.

    A replica that system.json leaves out has no machine unless its trainers name accelerators.
    """
    reported: dict[int, list[tuple[str, ...]]] = {}
    for trial in data.ledger.trials.values():
        if trial.built is not None and trial.begun is not None:
            reported.setdefault(trial.begun.replica, []).append(trial.built.devices)
    return {
        number: machine
        for number in sorted(data.ledger.replicas)
        if (machine := _machine(data, number, reported.get(number, []))) is not None
    }


def _machine(data: RunData, replica: int, reported: list[tuple[str, ...]]) -> Machine | None:
    facts = data.system.get(str(replica))
    names = frozenset(name for names in reported for name in names)
    accelerators = sorted(names - {CPU})
    host = facts.host if facts is not None else None
    # Trainers that name nothing but CPUs have computed there, whatever the node has.
    if facts is not None and facts.accelerators and (accelerators or not names):
        name = facts.accelerator or "accelerator without a name"
        return Machine(replica, name, find_device(name), devices_of(data, replica), host, names)
    if accelerators:
        most = max(sum(name != CPU for name in each) for each in reported)
        return Machine(replica, accelerators[0], find_device(accelerators[0]), most, host, names)
    if facts is None or not facts.cpu_count:
        return None
    return Machine(replica, CPU, None, facts.cpu_count * data.manifest.config.replica.nodes, host, names)


def memory_limits(data: RunData) -> dict[int, tuple[int, int]]:
    """The least and the most memory in bytes that limited a search, by replica, if it is known."""
    found: dict[int, tuple[int, int]] = {}
    for trial in data.ledger.trials.values():
        if trial.started is not None and (limit := trial.started.memory_bytes):
            least, most = found.get(trial.started.replica, (limit, limit))
            found[trial.started.replica] = min(least, limit), max(most, limit)
    return found


def crowded_hosts(data: RunData) -> Iterator[tuple[str, int, int]]:
    """Hosts with fewer accelerators than ranks: host, ranks that trainers reported, accelerators.

    A rank has a device of its own, unless more replicas than devices share a node.
    """
    ranks: dict[int, int] = {}
    for trial in data.ledger.trials.values():
        if trial.built is not None and trial.begun is not None:
            own = sum(name != CPU for name in trial.built.devices)
            ranks[trial.begun.replica] = max(own, ranks.get(trial.begun.replica, 0))
    hosts: dict[str, list[tuple[int, int]]] = {}
    for replica, own in sorted(ranks.items()):
        facts = data.system.get(str(replica))
        if facts is not None and own:
            devices = data.manifest.config.replica.nodes * (facts.accelerators or 0)
            hosts.setdefault(facts.host or f"replica {replica}", []).append((own, devices))
    for host, found in hosts.items():
        together, devices = sum(own for own, _ in found), max(devices for _, devices in found)
        if together > max(devices, len(found)):
            yield host, together, devices


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
    share = replicas_of_node(data)
    return data.manifest.config.replica.nodes * len(numbers_of_share(facts.accelerators, replica, share))


def replicas_of_node(data: RunData) -> int:
    """Replicas that share a node; none do in a rehearsal, whatever launcher is configured."""
    config = data.manifest.config
    if data.manifest.rehearsed is not None:
        return 1
    return config.run.replicas if config.run.launcher == "local" else config.replica.per_node
