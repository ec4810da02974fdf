"""Replicas under SLURM: steps of the allocation that the primary runs in, or jobs of their own outside of one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets

from aiperf.config.placement import nodes_needed, nodes_of
from aiperf.config.settings import RunConfig
from aiperf.errors import LaunchError
from primary.launchers.contract import Exit, ReplicaProcess, ReplicaSpec
from primary.launchers.pipes import PipeProcess, start_child
from slurm.commands import clean_environment, job_of_its_own, step_in_allocation, steps_of_mpirun
from slurm.hostlists import expand
from slurm.states import JOB_FORMAT, JobState, job_in_words, node_in_words, parse_jobs

QUERY_TIMEOUT_S = 20.0
QUERY_INTERVAL_S = 0.5
ENDING_QUERIES = 20
LEFTOVERS_TIMEOUT_S = 5.0
"""For what SLURM kills: its controller and the nodes' daemons take their time."""

SIGNAL_BASE = 128
"""srun ends with this plus the signal's number where a signal ended the task."""


class SlurmLauncher:
    """Starts replicas through srun."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self.per_node = config.replica.per_node
        self._allocation = os.environ.get("SLURM_JOB_ID")
        self._nodes = expand(os.environ.get("SLURM_JOB_NODELIST", "")) if self._allocation else ()
        self._run = secrets.token_hex(4)

    async def start(self, spec: ReplicaSpec) -> ReplicaProcess:
        """Start a replica; outside of an allocation it may wait in the queue first. Raises LaunchError."""
        name = f"aiperf-{self._run}-{spec.replica:04d}"
        nodes = self._nodes_of(spec.replica)
        if self._allocation:
            command = step_in_allocation(self._allocation, name, nodes, spec.command)
        else:
            command = job_of_its_own(self._config.slurm, name, self._config.replica.nodes, spec.command)
        environment = {**spec.environment, **(steps_of_mpirun(name) if self._config.replica.nodes > 1 else {})}
        child = await start_child(
            spec, ["env", "-i", *_words(clean_environment(os.environ), environment), *command], {}
        )
        return SlurmProcess(child, name, self._allocation, nodes)

    def _nodes_of(self, replica: int) -> tuple[str, ...]:
        """The nodes of the allocation that a replica takes. Raises LaunchError where there are too few."""
        if not self._allocation:
            return ()
        nodes = nodes_of(replica, self._config, self._nodes)
        if len(nodes) < self._config.replica.nodes:
            raise LaunchError(
                f"replica {replica} finds no {self._config.replica.nodes} node(s): SLURM job {self._allocation} has "
                f"{len(self._nodes)}, {nodes_needed(self._config)} are needed; ask for more, or lower run.replicas"
            )
        return nodes


def _words(kept: dict[str, str], added: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in {**kept, **added}.items()]


class SlurmProcess(PipeProcess):
    """A replica behind srun."""

    def __init__(
        self, process: asyncio.subprocess.Process, name: str, allocation: str | None, nodes: tuple[str, ...]
    ) -> None:
        super().__init__(process)
        self._name = name
        self._allocation = allocation
        self._nodes = nodes

    async def wait(self) -> Exit:
        """How it ended: srun passes the exit code of the task on."""
        return Exit(_as_signal((await super().wait()).code))

    async def _jobs(self) -> tuple[JobState, ...]:
        """Its job; one that is ending is waited for, because only then does SLURM tell how it ended."""
        job = ("--jobs", self._allocation) if self._allocation else ("--name", self._name)
        for _ in range(ENDING_QUERIES):
            jobs = parse_jobs(await _ask("squeue", "--noheader", "--states=all", *job, f"--format={JOB_FORMAT}"))
            if self._allocation or not jobs or jobs[-1].state not in ("COMPLETING", "RUNNING"):
                break
            await asyncio.sleep(QUERY_INTERVAL_S)
        return jobs

    async def cancel(self, grace_s: float) -> Exit:
        """Terminate the step; cancel the job and whatever SLURM still knows of it."""
        found = await super().cancel(grace_s)
        await self._cancel_leftovers()
        return Exit(_as_signal(found.code))

    async def _cancel_leftovers(self) -> None:
        """Those of a node that does not answer stay until SLURM gives it up; nobody waits for that."""
        if self._allocation is None:
            await _ask("scancel", f"--name={self._name}")
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEFTOVERS_TIMEOUT_S):
                while steps := await self._steps(self._allocation):
                    await _ask("scancel", "--signal=KILL", *steps)
                    await asyncio.sleep(QUERY_INTERVAL_S)

    async def _steps(self, allocation: str) -> list[str]:
        """Its own step and those of its ranks on further nodes, which outlive the srun that started them."""
        shown = await _ask("squeue", "--noheader", "--steps", f"--jobs={allocation}", "--format=%i|%j")
        rows = (line.strip().partition("|") for line in shown.splitlines())
        return [step for step, _, name in rows if name == self._name]

    async def explain(self) -> str:
        """What SLURM says of its job and its nodes."""
        told = [job_in_words(await self._jobs())]
        for node in self._nodes:
            told.append(
                node_in_words(node, (await _ask("sinfo", "--noheader", f"--nodes={node}", "--format=%T")).strip())
            )
        return "; ".join(text for text in told if text)


def _as_signal(code: int | None) -> int | None:
    return SIGNAL_BASE - code if code is not None and SIGNAL_BASE < code < SIGNAL_BASE + 65 else code


async def _ask(program: str, *words: str) -> str:
    """What a SLURM command prints; nothing where it fails or takes too long: it only adds words to a message."""
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=clean_environment(os.environ),
        )
        async with asyncio.timeout(QUERY_TIMEOUT_S):
            output, _ = await process.communicate()
    except (OSError, TimeoutError):
        return ""
    return output.decode(errors="replace")
