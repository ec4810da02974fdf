"""The diagnosis: nodes examined through the launcher, and every check of what was found."""

import asyncio
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from aiperf.answers import ask_and_wait
from aiperf.clock import Clock
from aiperf.config.duration import format_duration
from aiperf.config.settings import RunConfig
from aiperf.errors import AiperfError, EnvironmentNotReadyError, MessageError
from aiperf.examination import BeginExamination, ExamineRequest, read_examination, write_request
from aiperf.files import remove_folder
from aiperf.processes import last_lines, python_module
from aiperf.wire.lines import encode
from aiperf.wire.messages import ClockReply, ClockRequest
from primary import preflight
from primary.doctor.checks import findings_of
from primary.doctor.contract import Answer, Evidence, Finding
from primary.environment import on_node
from primary.launchers import Launcher, ReplicaProcess, ReplicaSpec, make_launcher
from primary.launchers.talk import Talk, first_message, talk_in
from primary.open_files import allow_files, files_needed
from primary.replica_link import CLOCK_SAMPLES, ClockOffset
from primary.work.data import science_problems
from slurm.commands import clean_environment
from slurm.states import NODES_FORMAT, NodeState, parse_nodes

END_GRACE_S = 10.0
"""Seconds for an examiner to end its ranks."""


@dataclass(frozen=True, slots=True)
class ExaminerSettings:
    """Common settings of the examiners of all nodes."""

    config: RunConfig
    launcher: Launcher
    clock: Clock
    folder: Path
    """A scratch directory on the run's file system."""
    steps: int
    """Training steps of the probe; 0: none."""
    limit_s: float


async def examine_nodes(settings: ExaminerSettings) -> tuple[dict[int, Answer], dict[int, str]]:
    """The answers by replica, and the reasons of those that gave none."""
    replicas = range(settings.config.run.replicas)
    results = await asyncio.gather(*(_examine(settings, replica) for replica in replicas))
    answers = {replica: result for replica, result in enumerate(results) if isinstance(result, Answer)}
    return answers, {replica: result for replica, result in enumerate(results) if isinstance(result, str)}


async def _examine(settings: ExaminerSettings, replica: int) -> Answer | str:
    module = python_module(
        "replica.agent.examine",
        "--replica",
        str(replica),
        "--share",
        str(settings.launcher.per_node),
        python=settings.config.environment.python,
    )
    command = on_node(settings.config.environment, module)
    spec = ReplicaSpec(replica, command, settings.folder / f"examiner-{replica:04d}.log")
    process: ReplicaProcess | None = None
    try:
        async with asyncio.timeout(settings.limit_s):
            process = await settings.launcher.start(spec)
            answer = await _ask(settings, process, Talk(spec.log))
        return replace(answer, talk=tuple(await asyncio.to_thread(talk_in, spec.log)))
    except TimeoutError:
        known = await process.explain() if process is not None else ""
        return f"no answer within {format_duration(settings.limit_s)}{f'; {known}' if known else ''}{_end_of(spec.log)}"
    except EOFError:
        assert process is not None
        known = await process.explain()
        return f"the examiner {await process.wait()}{f'; {known}' if known else ''}{_end_of(spec.log)}"
    except AiperfError as error:  # of the launcher, or of the protocol
        return str(error)
    finally:
        if process is not None:
            await process.cancel(END_GRACE_S)


async def _ask(settings: ExaminerSettings, process: ReplicaProcess, talk: Talk) -> Answer:
    request = ExamineRequest(config=settings.config, folder=str(settings.folder), steps=settings.steps)
    await process.send(write_request(request))
    samples = [await _clock_offset(settings.clock, process, talk)]
    samples += [await _clock_offset(settings.clock, process) for _ in range(CLOCK_SAMPLES - 1)]
    # The first round trip includes the start of the program, which makes it the longest.
    await process.send(encode(BeginExamination()))
    offset = min(samples, key=lambda sample: sample.uncertainty_ms)
    return Answer(read_examination(await _line(process)), offset)


async def _clock_offset(clock: Clock, process: ReplicaProcess, talk: Talk | None = None) -> ClockOffset:
    sent_ms, sent_s = clock.utc_ms(), clock.monotonic_s()
    await process.send(encode(ClockRequest()))
    line = await _line(process)
    while talk is not None and (reply := first_message(line)) is None:
        await asyncio.to_thread(talk.hear, line)
        line = await _line(process)
    reply = first_message(line)
    if not isinstance(reply, ClockReply):
        raise MessageError(f"expected the time from the examiner, got {type(reply).__name__}")
    trip_ms = (clock.monotonic_s() - sent_s) * 1000
    # The answer may have been given at any moment of the trip, and both times are whole
    # milliseconds.
    return ClockOffset(round(reply.utc_ms - sent_ms - trip_ms / 2), round(trip_ms / 2) + 1)


async def _line(process: ReplicaProcess) -> bytes:
    line = await process.receive()
    if not line:
        raise EOFError
    return line


def _end_of(log: Path) -> str:
    last = last_lines(log) if log.exists() else ""
    return f"; the end of its log: {last}" if last else ""


PROBE_STEPS = 20
SINFO_TIMEOUT_S = 20.0

TIME_LIMIT_S = 900.0
"""Seconds for a node's examination, the start of its program and of its ranks included."""


@dataclass(frozen=True, slots=True)
class Order:
    """Order to examine a run of this configuration in this directory, which is not made."""

    config: RunConfig
    output: Path
    steps: int = PROBE_STEPS
    """Training steps of the probe; 0: none."""
    limit_s: float = TIME_LIMIT_S


def diagnose(order: Order, clock: Clock) -> list[Finding]:
    """Examine the planned run. Nothing is left on disk."""
    problems = _launcher_problems(order.config)
    partition, science_data = _partition(order.config), science_problems(order.config)
    evidence = Evidence(
        order.config, order.output, launcher_problems=problems, partition=partition, science_data=science_data
    )
    if not problems:
        folder = _scratch(order.output)
        try:
            launcher = make_launcher(order.config, clock)
            allow_files(files_needed(order.config))
            # The steps of a probe are those of AutoML's initial architecture.
            steps = 0 if evidence.is_science else order.steps
            settings = ExaminerSettings(order.config, launcher, clock, folder, steps, order.limit_s)
            answers, silent = asyncio.run(examine_nodes(settings))
        finally:
            remove_folder(folder)
        evidence = replace(evidence, answers=answers, silent=silent, per_node=launcher.per_node)
    return findings_of(evidence)


def _launcher_problems(config: RunConfig) -> tuple[str, ...]:
    """List the reasons why the launcher cannot be made, unreadable variables of a job included."""
    try:
        return tuple(preflight.launcher_problems(config))
    except EnvironmentNotReadyError as error:
        return error.problems


def _partition(config: RunConfig) -> tuple[NodeState, ...] | None:
    """The nodes of the partition if each replica is a job of SLURM; None if not, or unknown."""
    if config.run.launcher != "slurm" or "SLURM_JOB_ID" in os.environ:
        return None
    words = ["sinfo", "--noheader", "--Node", f"--format={NODES_FORMAT}"]
    answer = ask_and_wait(words, SINFO_TIMEOUT_S, clean_environment(os.environ))
    # Without an answer the check of the primary says what is wrong with the launcher.
    return parse_nodes(answer.output, config.slurm.partition) if answer.fine else None


def _scratch(output: Path) -> Path:
    """A directory next to the run's, which the nodes are to see; elsewhere if that is refused."""
    existing = next(parent for parent in output.absolute().parents if parent.is_dir())
    try:
        return Path(tempfile.mkdtemp(prefix=".aiperf-doctor-", dir=existing))
    except OSError:  # the check of the disk says so
        return Path(tempfile.mkdtemp(prefix="aiperf-doctor-"))
