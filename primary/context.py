"""Objects that all parts of a primary share: the run's context, its milestones, its nodes."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from aiperf.clock import Clock
from aiperf.config.settings import RunConfig
from aiperf.files import atomic_file, can_write, read
from aiperf.machine.node import NodeFacts
from aiperf.records.history_files import HistoryWriter
from aiperf.run_directory.checksums import sealed, sealed_object
from aiperf.run_directory.claim import Claim, PrimaryIdentity
from aiperf.run_directory.paths import PRIMARY_NODE, RunPaths
from aiperf.run_directory.recorded_files import Beginning, beginnings
from aiperf.storage.reserve import Reserve
from primary.digest import DigestKeeper
from primary.display.state import Display, Earlier, LiveReplica
from primary.launchers import Launcher
from primary.managers import Manager
from primary.nodes.placement import PlacementCheck
from primary.work.contract import WorkList

log = logging.getLogger(__name__)

PROBE_INTERVAL_S = 5.0
"""Seconds between two tries to write a file."""

GIVING_BACK_S = 5.0
"""Longest wait for storage that does not answer: the end of the run is not to wait for it."""

WRITING_SHARE = 20
"""The description of all nodes may be large, and replicas may come one by one."""


@dataclass(frozen=True)
class RunContext:
    """The parts that a run is made of."""

    config: RunConfig
    paths: RunPaths
    launcher: Launcher
    writer: HistoryWriter
    display: Display
    work: WorkList
    claim: Claim
    manager: Manager
    released_ms: int | None = None
    """UTC of the release, for a resumed run; the time since then has passed."""
    reserve: Reserve | None = None
    """Space for the last records."""
    digest: DigestKeeper = field(default_factory=DigestKeeper)
    identity: PrimaryIdentity = field(default_factory=PrimaryIdentity)
    earlier: Mapping[int, Earlier] = field(default_factory=dict)
    """Work of each replica before the run was resumed."""

    @property
    def clock(self) -> Clock:
        """The clock that the primary's records are stamped with."""
        return self.writer.clock

    def announce(self, text: str) -> None:
        """Log a line and show it."""
        log.info("%s", text)
        self.display.event(text)


class Milestones:
    """The moments of a run that its parts wait for."""

    def __init__(self) -> None:
        self.answered: set[int] = set()
        """Replicas that were ready or lost at least once."""
        self.changed = asyncio.Event()
        """Set at every answer; cleared by the barrier, which waits for it."""
        self.released = asyncio.Event()
        self.stopping = asyncio.Event()
        self.complete = asyncio.Event()
        """Set if the work list has nothing left, and nothing can come back."""

    def answer(self, replica: int) -> None:
        """Note that a replica is ready or lost."""
        self.answered.add(replica)
        self.changed.set()

    async def or_end(self, awaited: Coroutine[Any, Any, object]) -> None:
        """Wait for something, but not beyond the end of the run. Raises what the awaited raises."""
        task, end = asyncio.create_task(awaited), asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait({task, end}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        finally:
            task.cancel()
            end.cancel()


def _described_before(path: Path) -> dict[str, NodeFacts]:
    """The nodes in the file of an earlier primary; none if it is missing or damaged."""
    try:
        return sealed_object(read(path))
    except (OSError, ValueError, RecursionError) as error:
        if not isinstance(error, FileNotFoundError):
            log.warning("%s is made anew: %s", path, error)
        return {}


class SystemFile:
    """`system.json`: the nodes of all replicas, and of the primary.

    Changes are collected, since every write is of the whole file.
    """

    def __init__(self, path: Path, primary: NodeFacts | None = None) -> None:
        self._path = path
        # Replicas of an earlier primary that never come back have worked all the same.
        self._nodes = _described_before(path)
        if primary is not None:
            self._nodes[PRIMARY_NODE] = dict(primary)
        self._changed = False
        self._unchecked = False
        """True if a node came after the last check."""
        self._next_s = -inf
        self._closed = False
        self._writing = threading.Lock()  # `keep` writes in a thread, which its task cannot end

    def add(self, replica: int, facts: NodeFacts) -> None:
        """Note the description of a replica's node, to be written later; no-op once closed."""
        if self._closed:
            return
        self._nodes[str(replica)] = dict(facts)
        self._changed = self._unchecked = True

    def check(self, placement: PlacementCheck, present: Iterable[int]) -> list[str]:
        """New warnings about the nodes of the replicas that are present, kept with their nodes.

        No-op if no node came since the last check.
        """
        if not self._unchecked:
            return []
        self._unchecked = False
        found = placement.look({number: self._nodes[str(number)] for number in present if str(number) in self._nodes})
        for text, replicas in found.items():
            for name in map(str, replicas):
                facts = self._nodes[name]
                warning = f"{facts['warning']}; {text}" if "warning" in facts else text
                self._nodes[name] = {**facts, "warning": warning}  # another thread may be writing the old one
            self._changed = True
        return list(found)

    async def keep(self, clock: Clock) -> None:
        """Write the file if anything has changed, or log why not: a later call tries again.

        Writes take at most one part of `WRITING_SHARE` of the time. The history list decides
        whether the run can continue.
        """
        began_s = clock.monotonic_s()
        if not self._changed or self._closed or began_s < self._next_s:
            return
        self._changed = False
        try:
            # A copy: the event loop may add nodes while the thread writes.
            await asyncio.to_thread(self._write_until_closed, dict(self._nodes))
        except OSError as error:
            self._changed = True
            log.warning("%s cannot be written: %s", self._path, error)
        ended_s = clock.monotonic_s()
        self._next_s = ended_s + WRITING_SHARE * (ended_s - began_s)

    def try_to_write(self) -> None:
        """Write as `keep` does, but only log a failure: for the end of the run."""
        if self._changed:
            try:
                self._write(self._nodes)
            except OSError as error:
                log.warning("%s cannot be written: %s", self._path, error)
            else:
                self._changed = False

    def close(self) -> None:
        """Write what is known, in any thread; nothing is written afterwards. Raises OSError."""
        with self._writing:
            self._closed = True
            if self._nodes:
                self._write(self._nodes)
            self._changed = False

    def _write_until_closed(self, nodes: dict[str, NodeFacts]) -> None:
        with self._writing:  # a slow write must not replace what `close` has written
            if not self._closed:
                self._write(nodes)

    def _write(self, nodes: dict[str, NodeFacts]) -> None:
        data = sealed(nodes, indent=2) + b"\n"
        with atomic_file(self._path) as stream:
            stream.write(data)


async def give_back(reserve: Reserve | None) -> None:
    """Give back the space for the last records, which may meet a full disk."""
    if reserve is not None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GIVING_BACK_S):
                await asyncio.to_thread(reserve.release)


async def recorded_files(context: RunContext, system: SystemFile, hurry: asyncio.Event) -> tuple[Beginning, ...]:
    """Nodes and samples as they are at the end; the nodes do not change any more.

    Empty if storage takes longer than its patience, or with `hurry`.
    """
    limit_s = context.config.run.stop_grace + context.config.storage.patience
    reading, hurried = asyncio.create_task(_read_files(context.paths, system)), asyncio.create_task(hurry.wait())
    try:
        done, _ = await asyncio.wait({reading, hurried}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if reading in done:
            return reading.result()
        log.warning("the record of the end does not name nodes and samples: they were not read in time")
    except OSError as error:
        log.warning("the record of the end does not name nodes and samples: %s", error)
    finally:
        reading.cancel()
        hurried.cancel()
    return ()


async def _read_files(paths: RunPaths, system: SystemFile) -> tuple[Beginning, ...]:
    await asyncio.to_thread(system.close)
    found, each = list[Beginning](), beginnings(paths)
    # A call for each file: a thread that is no longer waited for ends with its file.
    while (beginning := await asyncio.to_thread(next, each, None)) is not None:
        found.append(beginning)
    return tuple(found)


async def until_writable(context: RunContext, milestones: Milestones) -> None:
    """Wait until a file can be written below the run directory, but not beyond the end."""
    while not milestones.stopping.is_set() and not await asyncio.to_thread(can_write, context.paths.root):
        await milestones.or_end(context.clock.sleep(PROBE_INTERVAL_S))


def storage_notes(context: RunContext, view: LiveReplica) -> Callable[[str], None]:
    """A function that shows that a replica waits for storage, and why, or that it can write."""

    def note(reason: str) -> None:
        view.storage = reason
        context.announce(f"replica {view.replica} {storage_note(reason)}")

    return note


def storage_note(reason: str) -> str:
    """Describe a wait for storage, or its end, for the display."""
    return f"waits for storage: {reason}" if reason else "can write again"
