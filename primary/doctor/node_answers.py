"""What the checks look at: the configuration, and what the nodes have answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aiperf.config.settings import RunConfig
from aiperf.examination import Examination
from primary.replica_link import ClockOffset


@dataclass(frozen=True, slots=True)
class Answer:
    """A node's answer, and its clock minus the one here."""

    facts: Examination
    offset: ClockOffset
    talk: tuple[str, ...] = ()
    """What was printed on the way to it, before its first message."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that was gathered."""

    config: RunConfig
    output: Path
    """The run directory that the run would make."""
    answers: Mapping[int, Answer] = field(default_factory=dict)
    """By replica."""
    silent: Mapping[int, str] = field(default_factory=dict)
    """Why a replica's node gave no answer."""
    launcher_problems: tuple[str, ...] = ()
    """If there are any, no node was asked."""
    per_node: int = 1
    """Replicas that are meant to share a node."""

    def facts(self) -> Iterator[Examination]:
        """The answers, in the order of the replicas."""
        for replica in sorted(self.answers):
            yield self.answers[replica].facts
