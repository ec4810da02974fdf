"""The context that the trials of a replica share."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from aiperf.clock import Clock
from aiperf.config.sections.base import Precision
from aiperf.config.settings import RunConfig
from aiperf.machine.node import NodeFacts, describe_node
from aiperf.records.history_files import HistoryWriter
from aiperf.run_directory.paths import RunPaths
from aiperf.wire.messages import Message
from replica.agent.trial.trainer import StartTrainer
from replica.measure.micro.node_job import MicroReport
from replica.search.planner import Planner


@dataclass(frozen=True)
class ReplicaContext:
    """One replica: its configuration, its planner, its trainers, and the way to the primary."""

    replica: int
    config: RunConfig
    paths: RunPaths
    writer: HistoryWriter
    search: Planner | None
    """None in a run of a scientific suite, whose trainings are fixed."""
    ranks: int
    """Number of ranks of a training, without parameter servers."""
    start_trainer: StartTrainer
    precision: Precision
    send: Callable[[Message], None]
    """Function that sends a message to the primary."""
    shares_devices: bool = True
    """False if an accelerator takes one process at a time: no ranks warm up next to others."""
    measure_node: Callable[[], Awaitable[MicroReport]] | None = None
    """Function that measures the node before this replica is ready; None: it is not asked for."""
    describe_node: Callable[[], NodeFacts] = describe_node
    """Function that gives the facts of this replica's node."""

    @property
    def planner(self) -> Planner:
        """The planner of a replica that searches."""
        assert self.search is not None
        return self.search

    def report(self, message: Message) -> None:
        """Send a message as soon as all records so far are durable."""
        self.writer.after(partial(self.send, message))

    @property
    def clock(self) -> Clock:
        """The replica's clock: the one that the times of its records are read from."""
        return self.writer.clock
