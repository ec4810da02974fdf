"""Cost and size of a run's architectures, read with all CPUs if there are many."""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass

from aiperf.errors import ArchitectureError, UncountedLayerError
from aiperf.history.damage import Damage
from aiperf.network.operations import Operations, totals
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.run_directory.paths import RunPaths
from analysis.reading.workers import Workers

_HASH = re.compile("[0-9a-f]{16}")

CHUNK = 256
"""Architectures that are read in one task."""


@dataclass(frozen=True, slots=True)
class ArchitectureFacts:
    """Cost and size of an architecture; `depth` counts convolutions and dense layers."""

    cost: Operations
    parameters: int
    depth: int


class ArchitectureFactsReader:
    """Reads architectures while the caller is still finding their names."""

    def __init__(self, paths: RunPaths, workers: Workers) -> None:
        self._paths = paths
        self._workers = workers
        self._known: set[str] = set()
        self._waiting: list[str] = []
        self._chunks: list[tuple[list[str], Future[list[ArchitectureFacts | str]]]] = []

    def request(self, names: Iterable[str]) -> None:
        """Start reading architectures by hash; those requested before are not read again."""
        for name in names:
            if name not in self._known:
                self._known.add(name)
                self._waiting.append(name)
                if len(self._waiting) == CHUNK:
                    self._submit()

    def _submit(self) -> None:
        chunk, self._waiting = self._waiting, []
        self._chunks.append((chunk, self._workers.submit(_read_all, self._paths, chunk)))

    def results(self) -> tuple[dict[str, ArchitectureFacts], list[Damage]]:
        """Wait for all facts, by hash, and for the damages of other architectures.

        An architecture whose hash is not its name is one of those.
        """
        self._submit()
        read = [pair for names, future in self._chunks for pair in zip(names, future.result(), strict=True)]
        found = {name: facts for name, facts in read if isinstance(facts, ArchitectureFacts)}
        return found, [self._damage(name, facts) for name, facts in sorted(read, key=_name) if isinstance(facts, str)]

    def _damage(self, name: str, problem: str) -> Damage:
        problem = problem.removeprefix(f"{self._paths.architecture(name)}: ")
        return Damage(f"models/{name}/architecture.json", None, "architecture", problem)


def _name(item: tuple[str, object]) -> str:
    return item[0]


def _read_all(paths: RunPaths, names: list[str]) -> list[ArchitectureFacts | str]:
    return [_read(paths, name) for name in names]


def _read(paths: RunPaths, name: str) -> ArchitectureFacts | str:
    if _HASH.fullmatch(name) is None:  # a path of an opponent may lead anywhere
        return "its name is not the hash of an architecture"
    try:
        # A store of its own: thousands of architectures would fill the memory.
        architecture = ArchitectureStore(paths).load(name)
        cost, parameters = totals(architecture)
    except (ArchitectureError, UncountedLayerError) as error:
        return str(error)
    return ArchitectureFacts(cost, parameters, architecture.depth)
