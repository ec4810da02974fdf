"""The contract of a check: the evidence that it reads, and the findings that it gives."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

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


Status = Literal["ok", "warning", "failed", "not examined"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; the remedy of one that is ok is empty."""

    check: str
    status: Status
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Remark:
    """A remark about one replica, before equal ones are put together."""

    replica: int
    status: Status
    found: str
    remedy: str = ""


def together(check: str, remarks: Iterable[Remark]) -> list[Finding]:
    """A finding for each different text, with the replicas that it is about; failed ones first."""
    groups: dict[tuple[Status, str, str], list[int]] = {}
    for item in remarks:
        groups.setdefault((item.status, item.found, item.remedy), []).append(item.replica)
    order: tuple[Status, ...] = ("failed", "warning", "not examined", "ok")
    return [
        Finding(check, status, f"{replicas_in_words(replicas)}: {found}", remedy)
        for (status, found, remedy), replicas in sorted(groups.items(), key=lambda item: order.index(item[0][0]))
    ]


def replicas_in_words(replicas: Iterable[int]) -> str:
    """Numbers as ranges: "replica 3", "replicas 0-2, 5"."""
    numbers = sorted(replicas)
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    text = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"replica{'s' if len(numbers) > 1 else ''} {text}"
