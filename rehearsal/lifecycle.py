"""A rehearsal from its first record to its last: its faults, its primaries, their successors."""

import asyncio
import contextlib
import gc
import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from aiperf.cli.waiting import note
from aiperf.clock import Clock, format_utc
from aiperf.config.duration import format_duration
from aiperf.config.settings import RunConfig
from aiperf.errors import EnvironmentNotReadyError, UsageError
from aiperf.records.history_files import HistoryWriter
from aiperf.run_directory.claim import Claim
from aiperf.run_directory.holder import Holder, Machine
from aiperf.run_directory.manifest import Rehearsed, write_manifest
from aiperf.run_directory.paths import RunPaths
from aiperf.storage.durable import volatile
from aiperf.storage.logs import QuietHandler
from primary.context import RunContext
from primary.digest import open_digest
from primary.dispatcher import Dispatcher
from primary.display.state import LiveRun
from primary.managers import EndReason
from primary.native import NativeManager
from primary.open_files import OTHER_FILES, allow_files, files_problem
from primary.resumption import Start, prepare_resumption
from primary.work import open_work
from rehearsal.cluster import HOUR_S, Cluster, ClusterLauncher
from rehearsal.machine.file import FailuresSection, MachineFile
from rehearsal.virtual.clock import VirtualClock
from rehearsal.virtual.loop import VirtualLoop, run_virtually
from rehearsal.virtual.storage import VirtualWrites

# Faults, drawn from the mean times between failures of the machine file.

Kind = Literal["node", "rack", "storage", "primary"]

OUTAGES = ("", "No space left on device", "Stale file handle")
"""Effects of a file server on writers: they wait, it is full, or it has forgotten their files."""


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """A failure of something `at_s` seconds after the start."""

    at_s: float
    kind: Kind
    where: int = 0
    """Number of the node or rack; of an outage the index of what it does."""


def draw_faults(settings: FailuresSection, replicas: int, duration_s: float, rng: random.Random) -> list[Fault]:
    """The faults of a run by time: each kind is a Poisson process over all that may break."""
    racks = -(-replicas // settings.rack_nodes)
    found = [
        *_drawn("node", settings.node_mtbf_h, replicas, duration_s, rng),
        *_drawn("rack", settings.rack_mtbf_h, racks, duration_s, rng),
        *_drawn("storage", settings.storage_mtbf_h, 1, duration_s, rng, len(OUTAGES)),
        *_drawn("primary", settings.primary_mtbf_h, 1, duration_s, rng),
    ]
    return sorted(found)


def _drawn(
    kind: Kind, mtbf_h: float | None, number: int, duration_s: float, rng: random.Random, ways: int = 0
) -> Iterator[Fault]:
    if mtbf_h is None:
        return
    at_s = 0.0
    # Times between failures of n parts together are exponential with n times the rate of one.
    while (at_s := at_s + rng.expovariate(number / (mtbf_h * HOUR_S))) < duration_s:
        yield Fault(at_s, kind, rng.randrange(ways or number))


class PrimaryDiesError(Exception):
    """The node of the primary fails."""


class Breaker:
    """Lets the faults of a whole run happen, whatever becomes of its primaries."""

    def __init__(self, cluster: Cluster, faults: list[Fault]) -> None:
        self._cluster = cluster
        # Reversed, so that the next fault is popped from the end.
        self._left = faults[::-1]
        self.happened: list[Fault] = []

    async def play(self, clock: Clock) -> None:
        """Break what is due, one after the other. Raises PrimaryDiesError."""
        while self._left:
            await clock.sleep(max(0.0, self._left[-1].at_s - clock.monotonic_s()))
            fault = self._left.pop()
            self.happened.append(fault)
            self._happen(fault)

    def _happen(self, fault: Fault) -> None:
        settings = self._cluster.machine.failures
        if fault.kind == "primary":
            raise PrimaryDiesError
        if fault.kind == "storage":
            self._cluster.storage.refuse(settings.storage_s, OUTAGES[fault.where])
        elif fault.kind == "node":
            self._kill(fault.where)
        else:
            first = fault.where * settings.rack_nodes
            for replica in range(first, first + settings.rack_nodes):
                self._kill(replica)

    def _kill(self, replica: int) -> None:
        if (process := self._cluster.processes.get(replica)) is not None:
            process.kill()


# The course of a rehearsal.

SearchKind = Literal["real", "modelled"]


@dataclass(frozen=True)
class Rehearsal:
    """Order for a rehearsal: `config` gives the replicas, the duration and the seed."""

    config: RunConfig
    machine: MachineFile
    search: SearchKind = "modelled"
    """`real`, or `modelled`: architectures are drawn at random, at the cost of proposals."""
    report_s: float = 0.0
    """Least seconds between a training's reports of progress, but for the last ones of the run;
    0: as configured.
    """


@dataclass
class Outcome:
    """Outcome of a rehearsal."""

    ended: EndReason | None = None
    """End of the run; None: no primary could resume it before its deadline."""
    faults: list[Fault] = field(default_factory=list)
    primaries: int = 0
    messages: int = 0
    """Messages from replicas to primaries."""
    writes: int = 0
    """Writes of records to the shared file system."""


class _PrimaryNode(Machine):
    """The node of one primary: another boot for each, so that a dead one is known to be dead."""

    def __init__(self, number: int, living: set[int]) -> None:
        self.host, self.boot, self.namespaces = "rehearsal", "virtual", "virtual"
        self._number = number
        self._living = living

    def describe(self, token: str, now_ms: int, alone: bool) -> Holder:
        """This primary as a holder."""
        return Holder(
            token=token,
            host=self.host,
            boot=self.boot,
            namespaces=self.namespaces,
            pid=self._number,
            started_ticks=self._number,
            since=format_utc(now_ms),
            alone=alone,
        )

    def lives(self, holder: Holder) -> bool | None:
        """True if a primary has not died."""
        return holder.pid in self._living


class _Unseen:
    """The display of a primary without a watcher: a view of all replicas takes its time."""

    def event(self, text: str) -> None:
        """No-op: a rehearsal shows no events."""

    def refresh(self, view: LiveRun) -> None:
        """Say how far the rehearsal is."""
        if view.elapsed_s is not None:
            note(f"{format_duration(round(view.elapsed_s))} of {format_duration(view.duration_s)} rehearsed")

    def close(self) -> None:
        """No-op: the display has nothing to put away."""


def conduct(root: Path, rehearsal: Rehearsal) -> Outcome:
    """Make the run directory and rehearse the run.

    Raises OSError, EnvironmentNotReadyError if too few files may be open, and DeadlockError if
    every task waits for another.
    """
    needed = rehearsal.config.run.replicas + OTHER_FILES  # a file for each replica
    if problem := files_problem("this rehearsal", needed):
        raise EnvironmentNotReadyError([problem])
    allow_files(needed)
    paths = RunPaths(root)
    paths.create()
    described = rehearsal.machine
    facts = Rehearsed(
        machine=described.machine.name,
        search=rehearsal.search,
        report_s=rehearsal.report_s,
        source=described.machine.source or None,
        accelerator=described.node.accelerator,
        operations_per_s=described.step.operations_per_s,
    )
    write_manifest(paths, rehearsal.config, facts)
    with volatile(), _few_collections(), _logged(paths.primary_log):
        return run_virtually(lambda loop: _Conductor(paths, rehearsal, loop).run())


@contextlib.contextmanager
def _few_collections() -> Iterator[None]:
    """Collect garbage rarely in this block.

    Thousands of replicas are millions of objects that live to the end: to look through them again
    and again takes a sixth of the time, and almost nothing is in cycles.
    """
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextlib.contextmanager
def _logged(file: Path) -> Iterator[None]:
    """Keep what primary and agents complain of in the run's log, as those of a run do.

    Without times: they would not be those of the rehearsal.
    """
    handler = QuietHandler(file)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


class _Conductor:
    def __init__(self, paths: RunPaths, rehearsal: Rehearsal, loop: VirtualLoop) -> None:
        self._paths = paths
        self._config = rehearsal.config
        self._loop = loop
        self._clock = VirtualClock(loop)
        self._cluster = Cluster(self._config, paths, rehearsal.machine, loop, self._config.run.seed, rehearsal.report_s)
        self._living: set[int] = set()
        drawn = draw_faults(
            rehearsal.machine.failures,
            self._config.run.replicas,
            self._config.run.duration,
            self._cluster.drawn("faults"),
        )
        self._breaker = Breaker(self._cluster, drawn)
        self._outcome = Outcome(faults=self._breaker.happened)

    async def run(self) -> Outcome:
        """Conduct the run, with as many primaries as it takes."""
        with contextlib.suppress(UsageError):  # no time is left to resume
            while self._outcome.ended is None:
                self._outcome.ended = await self._primary()
                if self._outcome.ended is None:
                    await self._clock.sleep(self._cluster.machine.failures.restart_s)
        self._outcome.messages = self._cluster.messages
        self._outcome.writes = self._cluster.storage.writes
        return self._outcome

    async def _primary(self) -> EndReason | None:
        """One primary to its end; None if it died. Raises UsageError if no time is left."""
        self._outcome.primaries += 1
        number = self._outcome.primaries
        self._living.add(number)
        claim = Claim.acquire(self._paths.claims, self._clock, machine=_PrimaryNode(number, self._living))
        start = self._start(claim)
        writer = HistoryWriter(self._paths, "primary", self._clock, create=self._cluster.files.create)
        for body in (start.resumption, *start.closings):
            if body is not None:
                writer.append(body)
        self._cluster.files.flush()  # orphans look for the first record of another primary
        digest = open_digest(self._paths, writer, start.digest)
        context = RunContext(
            config=self._config,
            paths=self._paths,
            launcher=ClusterLauncher(self._cluster),
            writer=writer,
            display=_Unseen(),
            work=start.work,
            claim=claim,
            manager=NativeManager(),
            released_ms=start.released_ms,
            digest=digest,
        )
        dispatcher = Dispatcher(context)
        threads = [
            VirtualWrites(self._cluster.storage, lambda _: None),
            VirtualWrites(self._cluster.storage, lambda _: None, self._cluster.knowledge.note_write),
        ]
        writer.in_background(lambda _: dispatcher.interrupt(), lambda *_: threads[0])
        digest.in_background(lambda *_: threads[1])
        working = asyncio.create_task(dispatcher.run())
        if not await self._watch(working):
            await self._die(working, threads)
            self._living.discard(number)
            return None
        writer.close()
        digest.close(0.0)
        claim.release()
        self._living.discard(number)
        return working.result()

    def _start(self, claim: Claim) -> Start:
        if self._outcome.primaries == 1:
            return Start(claim, open_work(self._config))
        self._cluster.files.flush()
        return prepare_resumption(self._paths, self._config, claim, False, self._clock.utc_ms())

    async def _watch(self, working: asyncio.Task[EndReason]) -> bool:
        """True if a primary came to its end, False if it has to die."""
        breaking = asyncio.create_task(self._breaker.play(self._clock))
        await asyncio.wait({working, breaking}, return_when=asyncio.FIRST_COMPLETED)
        # No fault is left, which ends the task but not the primary; any other error is raised here.
        if breaking.done() and not isinstance(breaking.exception(), PrimaryDiesError):
            breaking.result()
            await asyncio.wait({working})
        breaking.cancel()
        return working.done()

    async def _die(self, working: asyncio.Task[EndReason], threads: list[VirtualWrites]) -> None:
        """End a primary as the failure of its node does, and wait for its orphans to end."""
        for writes in threads:
            # First: a dead node writes nothing more, whatever its tasks do as they are cancelled.
            writes.kill()
        processes = list(self._cluster.processes.values())
        for process in processes:
            process.sever()
        working.cancel()
        await asyncio.wait({working, *(process.ended for process in processes)})
