"""The runs of a dashboard as metrics, for Prometheus and other readers of its text.

Those of a run as a whole have the names of the report's export (`metrics.txt`). The label `run` is
the name of a run, and `id` stands for its directory. `node` is the name of a node as its kernel has
it, which is the label Hostname of dcgm-exporter; `UUID` is that of an accelerator, as there.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import get_args

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import CollectorRegistry

from aiperf.run_directory.state import State
from analysis.results.glance import RunStatus

LABELS = ("run", "id")


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of runs, as values by its further labels."""

    about: str
    values: Callable[[RunStatus], Mapping[tuple[str, ...], float]]
    labels: tuple[str, ...] = ()


def _one(read: Callable[[RunStatus], float | None]) -> Callable[[RunStatus], Mapping[tuple[str, ...], float]]:
    """A single value; none if it is not known."""

    def values(status: RunStatus) -> Mapping[tuple[str, ...], float]:
        value = read(status)
        return {} if value is None else {(): float(value)}

    return values


def _counted(words: Iterable[str]) -> Mapping[tuple[str, ...], float]:
    return {(word,): float(number) for word, number in Counter(words).items()}


def _waits(status: RunStatus) -> Mapping[tuple[str, ...], float]:
    """Shares by what was waited for: of the mean replica, and of the one that waits most.

    Its status has those of each replica: as metrics they would double the time of a scrape.
    """
    shares = {
        "input": [each.input_share for each in status.replicas],
        "all-reduce": [each.all_reduce_share for each in status.replicas],
        "servers": [each.servers_share for each in status.replicas],
    }
    known = {cause: [share for share in found if share is not None] for cause, found in shares.items()}
    return {
        (cause, of): value
        for cause, found in known.items()
        if found
        for of, value in (("mean", fmean(found)), ("most", max(found)))
    }


STATES: tuple[State, ...] = get_args(State)

METRICS: Mapping[str, Metric] = {
    "aiperf_state": Metric("1 for the state of the run, 0 for the others.",
                           lambda status: {(state,): float(status.state == state) for state in STATES}, ("state",)),
    "aiperf_score_ops": Metric("Operations per second of wall time so far.", _one(lambda status: status.score_ops)),
    "aiperf_regulated_score_ops": Metric("-ln(error) times the score so far.",
                                         _one(lambda status: status.regulated_score_ops)),
    "aiperf_error": Metric("1 - best measured top-1 validation accuracy so far.",
                           _one(lambda status: status.error if status.models is None else None)),
    "aiperf_duration_seconds": Metric("Seconds from the release of the replicas.",
                                      _one(lambda status: status.elapsed_s)),
    "aiperf_left_seconds": Metric("Seconds to the deadline.", _one(lambda status: status.left_s)),
    "aiperf_operations": Metric("Operations of all trials so far.",
                                _one(lambda status: sum(each.operations for each in status.replicas))),
    "aiperf_trials": Metric("Trials that were issued.", _one(lambda status: status.trials)),
    "aiperf_models_reached": Metric("Models of scientific workloads that reached their targets.",
                                    _one(lambda status: status.reached)),
    "aiperf_slow_replicas": Metric("Replicas that are slower than their like; absent if they were not compared.",
                                   _one(lambda status: None if status.slow is None else len(status.slow))),
    "aiperf_unhealthy_nodes": Metric("Nodes with signs that no healthy node has; absent if they were not looked at.",
                                     _one(lambda status: status.unhealthy)),
    "aiperf_replica_losses": Metric("Replicas that were lost or never came so far, a second loss of one included.",
                                    _one(lambda status: status.losses)),
    "aiperf_device_slowed_samples": Metric(
        "Samples so far in which an accelerator was slowed down for its heat or power supply; absent without any.",
        lambda status: {(each.node, each.device): float(each.samples) for each in status.slowed}, ("node", "UUID")),
    "aiperf_replicas_in_state": Metric("Replicas by state.",
                                       lambda status: _counted(each.state for each in status.replicas), ("state",)),
    "aiperf_replicas_in_phase": Metric("Replicas that work by their latest phase.", lambda status: _counted(
        each.phase for each in status.replicas if each.phase is not None and each.state == "working"), ("phase",)),
    "aiperf_replica_operations": Metric("Operations of a replica so far.", lambda status: {
        (str(each.replica), each.node or ""): float(each.operations) for each in status.replicas}, ("replica", "node")),
    "aiperf_replica_working_ops": Metric("Operations per second while a replica trained or evaluated.", lambda status: {
        (str(each.replica), each.node or ""): each.working_ops for each in status.replicas
        if each.working_ops is not None}, ("replica", "node")),
    "aiperf_waiting_share": Metric(
        "Share of training in which replicas waited; absent if it was not measured.", _waits, ("waits_for", "of")),
}  # fmt: skip
"""All metrics by name."""


@dataclass(frozen=True, slots=True, eq=False)
class _Runs:
    """A collector of prometheus_client."""

    found: Mapping[str, RunStatus]
    """Runs by id."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Give every metric with a value."""
        for name, metric in METRICS.items():
            family = GaugeMetricFamily(name, metric.about, labels=(*LABELS, *metric.labels))
            for run, status in self.found.items():
                for own, value in metric.values(status).items():
                    family.add_metric((status.name, run, *own), value)
            if family.samples:
                yield family


def metrics_text(found: Mapping[str, RunStatus], accepted: str) -> tuple[bytes, str]:
    """The metrics of runs by id, and the type of the text, by the Accept header of the reader."""
    encode, kind = choose_encoder(accepted)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Runs(found))
    text: bytes = encode(registry)
    return text, kind
