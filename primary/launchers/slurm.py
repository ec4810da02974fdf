"""Replicas under SLURM: steps of the primary's allocation, or jobs of their own without one."""

import asyncio
import contextlib
import os
from dataclasses import dataclass

from aiperf.answers import ask, ask_and_wait
from aiperf.clock import Clock
from aiperf.config.placement import CPUS_DIVIDED, GPUS_DIVIDED, JOB_OF_ITS_OWN, nodes_needed, nodes_of
from aiperf.config.settings import RunConfig
from aiperf.errors import LaunchError, UsageError
from aiperf.run_directory.claim import PrimaryIdentity
from primary.launchers.contract import Exit, ReplicaProcess, ReplicaSpec
from primary.launchers.pipes import PipeProcess, start_child
from slurm import commands, resources
from slurm.allocation import components, in_a_step
from slurm.hostlists import without
from slurm.states import JOB_FORMAT, JobState, job_in_words, node_in_words, parse_jobs
from slurm.times import time_limit

SIZE_REMEDY = "name the partition (slurm.partition), or set slurm.cpus_per_node and slurm.memory_per_node"

QUERY_TIMEOUT_S = 20.0
QUERY_INTERVAL_S = 0.5
ENDING_QUERIES = 20
QUERIES_AT_ONCE = 8
"""Upper limit for the questions about lost replicas that the controller has to answer at a time: a
fault of the network may take hundreds at once, and sites limit the requests of a user."""

LEFTOVERS_TIMEOUT_S = 5.0
"""Seconds for the end of killed steps: the controller and the nodes' daemons need a while."""

SIGNAL_BASE = 128
"""srun's exit code is this plus the number of the signal if a signal ended the task."""


class SlurmLauncher:
    """Starts replicas through srun."""

    def __init__(self, config: RunConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self.per_node = config.replica.per_node
        self._allocation = os.environ.get("SLURM_JOB_ID")
        self._components = components(os.environ)
        nodes = (node for component in self._components for node in component.nodes)
        self._nodes = without(nodes, config.run.exclude)
        self._part = self._part_of_node() if self._allocation else None
        self._request = None if self._allocation else _request(config)
        self._asking = asyncio.Semaphore(QUERIES_AT_ONCE)

    def _part_of_node(self) -> resources.StepPart | None:
        """The part of a replica that shares its node.

        Raises UsageError in a step that keeps SLURM from starting others with a part of the node.
        """
        jobs = [_ask_now("scontrol", "show", "job", "--details", component.job) for component in self._components]
        part = resources.part_in_allocation(self._config, os.environ, "\n".join(jobs))
        if part is not None and in_a_step(os.environ) and self._nodes:
            node = self._nodes[0]
            job = next(each.job for each in self._components if node in each.nodes)
            if why := _why_not(commands.trial_step(job, node, part)):
                step = f"{os.environ['SLURM_JOB_ID']}.{os.environ['SLURM_STEP_ID']}"
                raise UsageError(
                    f"this is SLURM's step {step} (srun --pty?), beside which SLURM starts no replica with a part "
                    f"of a node: {why}; type exit, and start the run from the shell of salloc or the job's script, or "
                    "enter the job by: srun --overlap --pty bash"
                )
        return part

    def end_leftovers(self, identity: PrimaryIdentity) -> None:
        """Cancel jobs, and kill steps of this allocation, whose primary has died.

        SLURM keeps the job of a salloc that was killed until its time limit.
        """
        self._end_earlier(identity, (f"--user={os.getuid()}",), ())
        if self._allocation:
            jobs = ",".join(component.job for component in self._components)
            self._end_earlier(identity, ("--steps", f"--jobs={jobs}"), ("--signal=KILL",))

    def _end_earlier(self, identity: PrimaryIdentity, which: tuple[str, ...], how: tuple[str, ...]) -> None:
        shown = _ask_now("squeue", "--noheader", *which, f"--format={commands.NAME_FORMAT}")
        if found := commands.of_earlier(shown, self._config, identity):
            _ask_now("scancel", *how, *found)

    async def start(self, spec: ReplicaSpec) -> ReplicaProcess:
        """Start a replica; outside an allocation it may wait in the queue first.

        Raises LaunchError.
        """
        name = commands.replica_name(self._config, spec.replica, spec.identity)
        nodes = self._nodes_of(spec.replica)
        job: str | None = None
        if self._allocation:
            job = self._component_of(spec.replica, nodes)
            command = commands.step_in_allocation(job, name, nodes, spec.command, self._part)
        else:
            assert self._request is not None
            command = commands.job_of_its_own(self._config, self._request, name, spec.command)
        environment = {**spec.environment, **self._division()}
        environment |= commands.steps_of_mpirun(name, os.environ) if self._config.replica.nodes > 1 else {}
        environment |= {} if self._allocation else {JOB_OF_ITS_OWN: "1"}
        child = await start_child(
            spec, ["env", "-i", *_words(commands.clean_environment(os.environ), environment), *command], {}
        )
        return SlurmProcess(child, SlurmTask(name, job, nodes), self._clock, self._asking)

    def _component_of(self, replica: int, nodes: tuple[str, ...]) -> str:
        """The job of a replica's nodes. Raises LaunchError if they are of several components."""
        jobs = {each.job for each in self._components if {*each.nodes} & {*nodes}}
        if len(jobs) != 1:
            raise LaunchError(
                f"replica {replica} would take nodes of several components of the heterogeneous job "
                f"{self._allocation} ({', '.join(nodes)}): no step can; make each component a multiple of "
                f"replica.nodes ({self._config.replica.nodes}) nodes"
            )
        return jobs.pop()

    def _division(self) -> dict[str, str]:
        """The variables of what SLURM divides among the replicas of a node, if they share one."""
        given = self._part or self._request
        if self.per_node == 1 or given is None:
            return {}
        count = str(self.per_node)
        return {CPUS_DIVIDED: count, **({GPUS_DIVIDED: count} if given.gpus else {})}

    def _nodes_of(self, replica: int) -> tuple[str, ...]:
        """The nodes of the allocation that a replica takes.

        Raises LaunchError if there are too few.
        """
        if not self._allocation:
            return ()
        nodes = nodes_of(replica, self._config, self._nodes)
        if len(nodes) < self._config.replica.nodes:
            raise LaunchError(
                f"too few nodes for replica {replica}: SLURM job {self._allocation} has {len(self._nodes)}, "
                f"{nodes_needed(self._config)} are needed; ask for more, or lower run.replicas"
            )
        return nodes


def _request(config: RunConfig) -> resources.Request:
    """The job of a replica, which depends on the size of the nodes if replicas share them.

    Raises UsageError, also if the job would end before the run.
    """
    time_limit(config)
    if not resources.needs_node_size(config):
        return resources.request_of_replica(config)
    answer = ask_and_wait(commands.size_of_nodes(config.slurm), QUERY_TIMEOUT_S, commands.clean_environment(os.environ))
    if not answer.fine:
        raise UsageError(f"the size of the nodes is not known: {answer.reason}; {SIZE_REMEDY}")
    node = resources.smallest_node(answer.output, config.slurm.partition)
    if node is None:
        raise UsageError(f"sinfo shows no node of the partition {config.slurm.partition or '(default)'}; {SIZE_REMEDY}")
    return resources.request_of_replica(config, node)


def _why_not(command: list[str]) -> str:
    """Explain why SLURM does not run a command; empty if it does."""
    answer = ask_and_wait(command, QUERY_TIMEOUT_S, commands.clean_environment(os.environ))
    return "" if answer.fine else answer.reason


def _words(kept: dict[str, str], added: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in {**kept, **added}.items()]


@dataclass(frozen=True, slots=True)
class SlurmTask:
    """A replica as SLURM knows it. Without an allocation it is a job of its own."""

    name: str
    allocation: str | None
    nodes: tuple[str, ...]


class SlurmProcess(PipeProcess):
    """A replica behind srun."""

    def __init__(
        self, process: asyncio.subprocess.Process, task: SlurmTask, clock: Clock, asking: asyncio.Semaphore
    ) -> None:
        """`asking` bounds the questions of all replicas about their ends."""
        super().__init__(process)
        self._task = task
        self._clock = clock
        self._asking = asking

    async def wait(self) -> Exit:
        """Wait for its end; srun ends with the exit code of the task."""
        return Exit(_as_signal((await super().wait()).code))

    async def _jobs(self) -> tuple[JobState, ...]:
        """Query the job, with a wait for its end: SLURM reports the reason only then."""
        allocation = self._task.allocation
        job = ("--jobs", allocation) if allocation else ("--name", self._task.name)
        for _ in range(ENDING_QUERIES):
            jobs = parse_jobs(await self._query("squeue", "--noheader", "--states=all", *job, f"--format={JOB_FORMAT}"))
            # Only a job of its own ends with the replica: the allocation goes on.
            if allocation or not jobs or jobs[-1].state not in ("COMPLETING", "RUNNING"):
                break
            await self._clock.sleep(QUERY_INTERVAL_S)
        return jobs

    async def cancel(self, grace_s: float) -> Exit:
        """Terminate the step, then cancel the job and the steps that are left of it."""
        found = await super().cancel(grace_s)
        await self._cancel_leftovers()
        return Exit(_as_signal(found.code))

    async def _cancel_leftovers(self) -> None:
        """Cancel the job, or kill the steps.

        Steps on an unreachable node stay until SLURM drops the node.
        """
        if self._task.allocation is None:
            await _ask("scancel", f"--name={self._task.name}")
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEFTOVERS_TIMEOUT_S):
                while steps := await self._steps(self._task.allocation):
                    await _ask("scancel", "--signal=KILL", *steps)
                    await self._clock.sleep(QUERY_INTERVAL_S)

    async def _steps(self, allocation: str) -> list[str]:
        """List the replica's step and its ranks' steps on further nodes, which may outlive srun."""
        shown = await _ask(
            "squeue", "--noheader", "--steps", f"--jobs={allocation}", f"--format={commands.NAME_FORMAT}"
        )
        rows = (line.strip().partition("|") for line in shown.splitlines())
        return [step for step, _, name in rows if name == self._task.name]

    async def explain(self) -> str:
        """The states of its job and its nodes according to SLURM."""
        found = [job_in_words(await self._jobs())]
        for node in self._task.nodes:
            state = await self._query("sinfo", "--noheader", f"--nodes={node}", "--format=%T")
            found.append(node_in_words(node, state.strip()))
        return "; ".join(text for text in found if text)

    async def _query(self, program: str, *words: str) -> str:
        async with self._asking:
            return await _ask(program, *words)


def _as_signal(code: int | None) -> int | None:
    return SIGNAL_BASE - code if code is not None and SIGNAL_BASE < code < SIGNAL_BASE + 65 else code


def _ask_now(program: str, *words: str) -> str:
    """Ask a program of SLURM as `_ask` does, for a primary that has no event loop yet."""
    return ask_and_wait([program, *words], QUERY_TIMEOUT_S, commands.clean_environment(os.environ)).output


async def _ask(program: str, *words: str) -> str:
    """The output of a SLURM command, only for a message: empty if it fails or takes too long."""
    return (await ask([program, *words], QUERY_TIMEOUT_S, commands.clean_environment(os.environ))).output
