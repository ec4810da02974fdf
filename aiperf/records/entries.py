"""A ledger's entries for one trial and for one replica."""

from dataclasses import dataclass, field

from aiperf.facts import Stamped
from aiperf.records import bodies
from aiperf.records.columns import Numbers, TrialEpochs, rows_of


def when(item: Stamped[object]) -> int:
    """The time of an item, as a sort key."""
    return item.time_ms


@dataclass(slots=True)
class TrialLedger:
    """The records of one trial. Times are on its writer's clock."""

    trial: int
    issued: bodies.JobIssued | None = None
    issued_ms: int | None = None
    """Time of issue, on the primary's clock."""
    begun: bodies.TrialStarted | bodies.WorkloadStarted | None = None
    """Record of the start, whatever the trial trains."""
    writer: str = ""
    started_ms: int | None = None
    built: bodies.TrialBuilt | None = None
    epochs: TrialEpochs = field(default_factory=TrialEpochs)
    exchanges: dict[tuple[int, int], bodies.GroupExchanged] = field(default_factory=dict)
    """Exchanges of a hybrid training, by epoch and group."""
    served: dict[tuple[int, int], bodies.ServerServed] = field(default_factory=dict)
    """Work of the servers of a hybrid training, by epoch and server."""
    progress: Numbers = field(default_factory=lambda: rows_of(8), compare=False)
    """Every report, or only the furthest (`Ledger.latest_progress_only`), as in
    `aiperf.records.columns`.
    """
    ended: Stamped[bodies.TrialEnded] | None = None
    failed: Stamped[bodies.TrialFailed] | None = None
    closed: Stamped[bodies.TrialClosed] | None = None
    """Record of the closing, on the primary's clock."""

    @property
    def started(self) -> bodies.TrialStarted | None:
        """Record of the start in a run of AutoML."""
        return self.begun if isinstance(self.begun, bodies.TrialStarted) else None

    @property
    def workload(self) -> bodies.WorkloadStarted | None:
        """Record of the start in a run of a scientific suite."""
        return self.begun if isinstance(self.begun, bodies.WorkloadStarted) else None

    @property
    def accuracy(self) -> float | None:
        """Best measured top-1 accuracy of a completed epoch."""
        return max((accuracy for accuracy in self.epochs.rows.accuracies() if accuracy is not None), default=None)

    @property
    def quality(self) -> float | None:
        """Best measured quality of a completed epoch: top-1 accuracy if the workload classifies."""
        return max((quality for quality in self.epochs.rows.qualities() if quality is not None), default=None)

    @property
    def search_accuracy(self) -> float | None:
        """The accuracy for the search: predicted in warm-up rounds, else measured."""
        if self.ended is not None and self.ended.body.predicted_accuracy is not None:
            return self.ended.body.predicted_accuracy
        return self.quality


@dataclass
class ReplicaLedger:
    """The records of one replica."""

    replica: int
    arrivals: set[Stamped[bodies.ReplicaReady]] = field(default_factory=set)
    losses: set[Stamped[bodies.ReplicaLost]] = field(default_factory=set)
    phases: dict[str, Numbers] = field(default_factory=dict)
    """Beginnings of phases by writer, on its clock, as in `aiperf.records.columns`."""

    @property
    def ready(self) -> bodies.ReplicaReady | None:
        """The latest start of the replica."""
        return max(self.arrivals, key=when).body if self.arrivals else None

    @property
    def lost(self) -> Stamped[bodies.ReplicaLost] | None:
        """The loss of the replica, unless it came back afterwards."""
        loss = max(self.losses, key=when, default=None)
        back = max(map(when, self.arrivals), default=None)
        return loss if loss is not None and (back is None or back <= loss.time_ms) else None
