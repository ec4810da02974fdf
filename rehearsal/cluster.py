"""The cluster of a rehearsal: its nodes' clocks, its file server, and the agents that run on it."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path

from aiperf.clock import SystemClock, format_utc
from aiperf.config.datasets import Dataset
from aiperf.config.settings import RunConfig
from aiperf.errors import AiperfError, StorageError
from aiperf.machine.node import NodeFacts, software
from aiperf.records.history_files import HistoryWriter
from aiperf.run_directory.paths import RunPaths
from aiperf.wire.messages import Message, TrainRequest, Unable
from primary.launchers.contract import ReplicaProcess, ReplicaSpec
from rehearsal.machine.file import MachineFile
from rehearsal.trainer import Bench, ModelledTrainer, Training
from rehearsal.virtual.clock import VirtualClock
from rehearsal.virtual.files import KeptFiles
from rehearsal.virtual.loop import VirtualLoop
from rehearsal.virtual.processes import Send, VirtualProcess
from rehearsal.virtual.storage import SharedStorage, VirtualWrites
from replica.agent.agent import Agent
from replica.agent.storage import StorageReports
from replica.agent.trial.context import ReplicaContext
from replica.agent.trial.trainer import Trainer
from replica.search.knowledge import Knowledge
from replica.search.planner import Memory, Planner

# Knowledge of the history, shared by all planners of a rehearsal: each would read the same.


class SharedKnowledge(Knowledge):
    """Reads the digest only after it was written: thousands of planners look at it every minute."""

    def __init__(self, paths: RunPaths, files: KeptFiles) -> None:
        super().__init__(paths)
        self._files = files
        self._stale = True

    def note_write(self) -> None:
        """Note that the digest was written."""
        self._stale = True

    def follow(self, digest: str | None) -> None:
        """Read a digest from now on; None: the raw records."""
        self._stale = self._stale or digest != self.digest
        super().follow(digest)

    def read(self) -> None:
        """Take in what is new. Raises OSError."""
        if self.digest is None:
            # The records of others may wait in memory (`KeptFile`).
            self._files.flush()
        elif not self._stale:
            return
        super().read()
        self._stale = False


# The cluster and its agents.

GIB = 1 << 30
HOUR_S = 3600.0

MARGIN_S = 60.0
"""Seconds by which the last reports of progress come before they must."""

SLOWEST_FROM = 1000
"""Results from which on a proposal takes no longer: `search.proposal_s` of the machine file."""


@dataclass
class Cluster:
    """Parts of a cluster that all replicas of a rehearsal share, and that outlive a primary."""

    config: RunConfig
    paths: RunPaths
    machine: MachineFile
    loop: VirtualLoop
    seed: int
    report_s: float = 0.0
    """Least seconds between reports of progress (`Rehearsal.report_s`)."""

    def __post_init__(self) -> None:
        settings = self.machine.storage
        self.storage = SharedStorage(self.loop, settings.write_s, settings.spread, self.seed)
        self.dataset: Dataset | None = self.config.dataset if self.config.run.suite == "automl" else None
        self.files = KeptFiles()
        self._software = {**software(), "rehearsed": format_utc(SystemClock().utc_ms())}
        self.knowledge = SharedKnowledge(self.paths, self.files)
        """Knowledge of all replicas: each would read the same."""
        self.processes: dict[int, VirtualProcess] = {}
        """The last process of each replica."""
        self.messages = 0
        """Number of messages that replicas have sent to primaries."""
        self.checkpoints: dict[Training, list[float]] = {}
        """Checkpoints of the trainings in progress."""
        self._trained_s: float | None = None
        """Time at which the first training began."""
        self._starting = asyncio.Semaphore(self.machine.start.together)

    def drawn(self, *what: object) -> random.Random:
        """The random numbers of something, the same in every rehearsal of this seed."""
        return _drawn(self.seed, *what)

    def clock(self, replica: int) -> VirtualClock:
        """The clock of a replica's node."""
        settings, rng = self.machine.clocks, self.drawn("clock", replica)
        offset_s, drift_ppm = rng.gauss(0, settings.offset_s), rng.gauss(0, settings.drift_ppm)
        return VirtualClock(self.loop, round(1000 * offset_s), drift_ppm)

    def slowness(self, replica: int) -> float:
        """Factor by which everything takes longer on a replica."""
        settings = self.machine.stragglers
        return settings.factor if is_straggler(self.seed, replica, settings.share) else 1.0

    def node_facts(self, replica: int) -> NodeFacts:
        """The facts of a replica's node by the machine file, and the software that rehearses it."""
        node = self.machine.node
        planned: NodeFacts = {
            "host": f"rehearsed-{replica:04d}",
            "accelerators": node.accelerators,
            "node_accelerators": node.accelerators,
            "accelerator": node.accelerator,
            "accelerator_memory_bytes": None if node.memory_gib is None else int(node.memory_gib * GIB),
        }
        unknown: NodeFacts = dict.fromkeys(
            ("os", "cpu_model", "cpu_count", "node_cpu_count", "memory_bytes", "node_memory_bytes")
        )
        return {**self._software, **unknown, **planned}

    def rank_lives(self, replica: int, start: int) -> Callable[[int], float]:
        """Make a function that draws the seconds until one of this many ranks dies."""
        mtbf_h, rng = self.machine.failures.rank_mtbf_h, self.drawn("ranks", replica, start)
        if mtbf_h is None:
            return lambda ranks: inf
        # The first death among n ranks comes at n times the rate of one.
        return lambda ranks: rng.expovariate(ranks / (mtbf_h * HOUR_S))

    def next_report_s(self, configured_s: float) -> float:
        """Seconds until a training's next report of progress.

        A run counts what is reported before its deadline, so the last reports come as configured.
        """
        if self._trained_s is None:
            self._trained_s = self.loop.time()
        start = self.machine.start
        left_s = self._trained_s + self.config.run.duration - self.loop.time()
        last_s = self.report_s + start.build_s + start.trial_s + MARGIN_S
        return configured_s if left_s <= last_s else max(configured_s, self.report_s)

    def propose(self, action: Callable[[], None]) -> float:
        """Make a proposal, let the time pass that it would take, and say the CPU seconds."""
        action()
        known = self.knowledge.summary().completed
        cost_s = self.machine.search.proposal_s * min(1.0, known / SLOWEST_FROM)
        self.loop.owe(cost_s)
        return cost_s

    async def started(self, replica: int) -> None:
        """Wait for the start of an agent."""
        settings = self.machine.start
        async with self._starting:
            late_s = settings.spread_s * self.drawn("start", replica).random()
            await self.clock(replica).sleep(settings.replica_s + late_s)


def is_straggler(seed: int, replica: int, share: float) -> bool:
    """True if a rehearsal of this seed makes a replica slow, as it does with a share of them."""
    return _drawn(seed, "straggler", replica).random() < share


def _drawn(*what: object) -> random.Random:
    return random.Random(" ".join(map(str, what)))  # noqa: S311  not for secrets


class ClusterLauncher:
    """Starts the agents of a primary on a cluster."""

    per_node = 1

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._starts: dict[int, int] = {}

    async def start(self, spec: ReplicaSpec) -> ReplicaProcess:
        """Start an agent as a task."""
        number = spec.replica
        self._starts[number] = self._starts.get(number, 0) + 1
        agent = _AgentProgram(self._cluster, number, self._starts[number])
        process = VirtualProcess(agent.serve, agent.kill)
        self._cluster.processes[number] = process
        return process


class _AgentProgram:
    """The work of `python -m replica`, without its process."""

    def __init__(self, cluster: Cluster, replica: int, start: int) -> None:
        self._cluster = cluster
        self._replica = replica
        self._start = start
        self._writes: VirtualWrites | None = None

    def kill(self) -> None:
        """Write nothing any more."""
        if self._writes is not None:
            self._writes.kill()

    async def serve(self, reader: asyncio.StreamReader, send: Send) -> None:
        """Serve the replica until its primary says stop or is gone."""
        cluster = self._cluster
        await cluster.started(self._replica)
        clock = cluster.clock(self._replica)

        def count_and_send(message: Message) -> None:
            cluster.messages += 1
            send(message)

        reports = StorageReports(count_and_send)
        writer = HistoryWriter(cluster.paths, f"replica-{self._replica:04d}", clock, create=cluster.files.create)
        try:
            agent = Agent(self._context(writer, clock, count_and_send))
            writer.in_background(agent.fail_replica, partial(self._write_by, reports))
            reports.attend(agent.note_storage)
            await agent.serve(reader)
        except AiperfError as error:
            count_and_send(Unable(reason=str(error), storage=isinstance(error, StorageError)))
        finally:
            writer.close()

    def _write_by(self, reports: StorageReports, *_: object) -> VirtualWrites:
        self._writes = VirtualWrites(self._cluster.storage, reports.of("records"))
        return self._writes

    def _context(self, writer: HistoryWriter, clock: VirtualClock, send: Send) -> ReplicaContext:
        cluster, node = self._cluster, self._cluster.machine.node
        memory = Memory(None if node.memory_gib is None else int(node.memory_gib * GIB), node.precision)
        bench = Bench(
            cluster.machine,
            cluster.dataset,
            clock,
            cluster.knowledge.load,
            cluster.slowness(self._replica),
            cluster.rank_lives(self._replica, self._start),
            cluster.next_report_s,
            cluster.checkpoints,
        )

        async def start_trainer(request: TrainRequest, log: Path) -> Trainer:
            return ModelledTrainer(request, bench)

        return ReplicaContext(
            replica=self._replica,
            config=cluster.config,
            paths=cluster.paths,
            writer=writer,
            search=Planner(self._replica, cluster.config, cluster.paths, memory, cluster.knowledge, cluster.propose),
            ranks=node.ranks,
            start_trainer=start_trainer,
            precision=node.precision,
            send=send,
            describe_node=partial(cluster.node_facts, self._replica),
        )
