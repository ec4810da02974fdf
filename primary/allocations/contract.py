"""The contract of a scheduler's allocation: whose job this is, and which hosts belong to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from aiperf.errors import EnvironmentNotReadyError


@dataclass(frozen=True, slots=True)
class Allocation:
    """The job that this process belongs to. What the scheduler does not say is None."""

    scheduler: str
    job: str
    entries: tuple[str, ...]
    """The scheduler's own list of hosts, in its order; a host may occur in it several times."""
    cpus: tuple[int, ...] = ()
    """CPUs (cores, slots) of the job on each of `hosts`, as the scheduler counts them."""
    gpus: tuple[int, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts in the scheduler's order, each once."""
        return tuple(dict.fromkeys(self.entries))

    def kept(self, hosts: Sequence[str]) -> Allocation:
        """The allocation with these of its hosts alone."""
        numbers = [number for number, host in enumerate(self.hosts) if host in hosts]
        return replace(
            self,
            entries=tuple(entry for entry in self.entries if entry in hosts),
            cpus=tuple(self.cpus[number] for number in numbers) if self.cpus else (),
            gpus=tuple(self.gpus[number] for number in numbers) if self.gpus else (),
        )

    def share_of(self, host: str) -> tuple[int | None, int | None]:
        """CPUs and GPUs of the job on a host; hosts of one job may differ."""
        number = self.hosts.index(host)
        cpus, gpus = (counts[number] if counts else None for counts in (self.cpus, self.gpus))
        return cpus, gpus

    @property
    def title(self) -> str:
        """The scheduler and the job, such as "PBS job 123.head"."""
        return f"{self.scheduler} job {self.job}" if self.job else f"{self.scheduler} job"

    def __str__(self) -> str:
        count = len(self.hosts)
        devices = [
            f"{_span(counts)} {name}{'' if max(counts) == 1 else 's'}"
            for counts, name in ((self.cpus, "CPU"), (self.gpus, "GPU"))
            if counts
        ]
        each = f", {' and '.join(devices)}{' each' if count > 1 else ''}" if devices else ""
        return f"{self.title}: {count} node{'' if count == 1 else 's'}{each}"


class FindAllocation(Protocol):
    """Looks for an allocation of one scheduler; the registered object."""

    def __call__(self, environment: Mapping[str, str], /) -> Allocation | None:
        """The allocation that the variables describe; None outside this scheduler's jobs.

        Raises EnvironmentNotReadyError if they name a file that cannot be read, or list no hosts.
        """


def unusable(title: str, problem: str) -> EnvironmentNotReadyError:
    """An error about an environment that does not describe its job."""
    return EnvironmentNotReadyError(
        [
            f"{title}: {problem}. Start AIPerf from the job's own script or shell, with its variables unchanged; "
            'or name the hosts yourself: run.launcher = "ssh" and ssh.hosts'
        ]
    )


def variable(name: str, environment: Mapping[str, str], title: str) -> str:
    """A variable that every job of this scheduler has. Raises EnvironmentNotReadyError."""
    value = environment.get(name, "").strip()
    if not value:
        raise unusable(title, f"{name} is not set")
    return value


def lines_of(name: str, environment: Mapping[str, str], title: str) -> list[str]:
    """The lines of the file that a variable names.

    Raises EnvironmentNotReadyError if it has none.
    """
    path = Path(variable(name, environment, title))
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise unusable(title, f"{name} names {path}: {error.strerror}") from None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise unusable(title, f"{name} names {path}, which lists no hosts")
    return lines


def _span(counts: tuple[int, ...]) -> str:
    return str(counts[0]) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
