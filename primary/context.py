"""Objects that all parts of a primary share: the run's context, its milestones, its nodes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiperf.clock import Clock
from aiperf.config.settings import RunConfig
from aiperf.errors import RunStorageError
from aiperf.files import write_atomically
from aiperf.history.bodies import AnyBody
from aiperf.history.files import HistoryWriter
from aiperf.history.records import Record
from aiperf.run_directory.claim import Claim
from aiperf.run_directory.paths import RunPaths
from aiperf.run_directory.seals import sealed
from primary.display.state import Display
from primary.launchers import Launcher
from primary.managers.contract import Manager
from primary.nodes.placement import PlacementCheck
from primary.work.contract import WorkList

log = logging.getLogger(__name__)

NodeFacts = dict[str, str | int | float | None]
"""A replica's description of its machine."""


class RunWriter(HistoryWriter):
    """The primary's file of the history list.

    Raises RunStorageError where `HistoryWriter` raises OSError: of all errors that meet a primary,
    only this one must end the run.
    """

    def __init__(self, paths: RunPaths, clock: Clock) -> None:
        self._root = paths.root
        try:
            super().__init__(paths, "primary", clock)
        except OSError as error:
            raise self._unwritable(error) from error

    def append(self, body: AnyBody, at_monotonic_ms: int | None = None) -> Record:
        """Write a record durably."""
        try:
            return super().append(body, at_monotonic_ms)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> RunStorageError:
        return RunStorageError([f"{self._root} can no longer be written: {error}"])


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

    @property
    def clock(self) -> Clock:
        """The clock that the primary's records are stamped with."""
        return self.writer.clock

    def announce(self, text: str) -> None:
        """Log a line and show it."""
        log.info("%s", text)
        self.display.event(text)

    def keep_claim(self, milestones: Milestones, every_s: float = 0.0) -> bool:
        """Keep the claim alive; False, with the end of this primary, if another one has it."""
        if self.claim.lost is None:
            self.claim.touch(every_s)
            if self.claim.lost is not None:
                self.announce(f"WARNING: {self.claim.lost}; its work from the other one's start on does not count")
                milestones.stopping.set()
        return self.claim.lost is None


class Milestones:
    """The moments of a run that its parts wait for."""

    def __init__(self) -> None:
        self.answered: set[int] = set()
        """Replicas that were ready or lost at least once."""
        self.changed = asyncio.Event()
        """Set at every answer; cleared by the barrier, which waits for it."""
        self.released = asyncio.Event()
        self.stopping = asyncio.Event()

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


class SystemFile:
    """`system.json`: the nodes of all replicas.

    Changes are collected, since every write is of the whole file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._nodes: dict[str, NodeFacts] = {}
        self._changed = False

    def add(self, replica: int, facts: NodeFacts) -> None:
        """Note the description of a replica's node, to be written later."""
        self._nodes[str(replica)] = dict(facts)
        self._changed = True

    def check(self, placement: PlacementCheck, present: Iterable[int]) -> list[str]:
        """New warnings about the nodes of the replicas that are present, kept with their nodes."""
        found = placement.look({number: self._nodes[str(number)] for number in present if str(number) in self._nodes})
        for text, replicas in found.items():
            for facts in (self._nodes[str(number)] for number in replicas):
                facts["warning"] = f"{facts['warning']}; {text}" if "warning" in facts else text
            self._changed = True
        return list(found)

    def try_to_write(self) -> None:
        """Write the file, or log why not: the history list decides whether the run can continue."""
        try:
            self.write()
        except OSError as error:
            log.warning("%s cannot be written: %s", self._path, error)

    def write(self) -> None:
        """Write the file if anything has changed.

        Raises OSError; the next call tries again then.
        """
        if self._changed:
            write_atomically(self._path, sealed(self._nodes, indent=2) + b"\n")
            self._changed = False
