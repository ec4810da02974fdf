"""Evidence for the checks: the configuration, and the answers of the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aiperf.config.settings import RunConfig
from aiperf.examination import Examination
from primary.replica_link import ClockOffset
from slurm.states import NodeState


@dataclass(frozen=True, slots=True)
class Answer:
    """A node's answer, and its clock minus the one here."""

    facts: Examination
    offset: ClockOffset
    talk: tuple[str, ...] = ()
    """Lines that were printed before its first message."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence of an examination."""

    config: RunConfig
    output: Path
    """The run directory that the run would make."""
    answers: Mapping[int, Answer] = field(default_factory=dict)
    """Answer of each replica's node."""
    silent: Mapping[int, str] = field(default_factory=dict)
    """Reason for the missing answer of a replica's node."""
    launcher_problems: tuple[str, ...] = ()
    """Problems of the launcher; if there are any, no node was asked."""
    per_node: int = 1
    """Replicas that are meant to share a node."""
    partition: tuple[NodeState, ...] | None = None
    """Nodes of the partition if replicas are jobs of SLURM; None if they are not."""
    science_data: tuple[str, ...] | None = None
    """Problems of the data of scientific workloads here; None if they were not looked through."""

    @property
    def is_science(self) -> bool:
        """True if the run would train scientific workloads in place of AutoML."""
        return self.config.run.suite == "science"

    def facts(self) -> Iterator[Examination]:
        """The answers, in the order of the replicas."""
        for replica in sorted(self.answers):
            yield self.answers[replica].facts
