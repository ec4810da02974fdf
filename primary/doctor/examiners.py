"""The examiners: a program on every node, started by the launcher, all at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

from aiperf.clock import Clock
from aiperf.config.duration import format_duration
from aiperf.config.settings import RunConfig
from aiperf.errors import AiperfError, MessageError
from aiperf.examination import BeginExamination, ExamineRequest, read_examination, write_request
from aiperf.processes import last_lines, python_module
from aiperf.wire.lines import encode
from aiperf.wire.messages import ClockReply, ClockRequest
from primary.doctor.node_answers import Answer
from primary.environment import on_node
from primary.launchers import Launcher, ReplicaProcess, ReplicaSpec
from primary.launchers.talk import Talk, first_message, talk_in
from primary.replica_link import CLOCK_SAMPLES, ClockOffset

END_GRACE_S = 10.0
"""Seconds for an examiner to end its ranks."""


@dataclass(frozen=True, slots=True)
class Visit:
    """Common settings of the examiners of all nodes."""

    config: RunConfig
    launcher: Launcher
    clock: Clock
    folder: Path
    """A scratch directory on the run's file system."""
    steps: int
    """Training steps of the probe; 0: none."""
    limit_s: float


async def examine_nodes(visit: Visit) -> tuple[dict[int, Answer], dict[int, str]]:
    """The answers by replica, and the reasons of those that gave none."""
    replicas = range(visit.config.run.replicas)
    results = await asyncio.gather(*(_examine(visit, replica) for replica in replicas))
    answers = {replica: result for replica, result in enumerate(results) if isinstance(result, Answer)}
    return answers, {replica: result for replica, result in enumerate(results) if isinstance(result, str)}


async def _examine(visit: Visit, replica: int) -> Answer | str:
    module = python_module(
        "replica.agent.examine",
        "--replica",
        str(replica),
        "--share",
        str(visit.launcher.per_node),
        python=visit.config.environment.python,
    )
    command = on_node(visit.config.environment, module)
    spec = ReplicaSpec(replica, command, visit.folder / f"examiner-{replica:04d}.log")
    process: ReplicaProcess | None = None
    try:
        async with asyncio.timeout(visit.limit_s):
            process = await visit.launcher.start(spec)
            answer = await _ask(visit, process, Talk(spec.log))
        return replace(answer, talk=tuple(await asyncio.to_thread(talk_in, spec.log)))
    except TimeoutError:
        known = await process.explain() if process is not None else ""
        return f"no answer within {format_duration(visit.limit_s)}{f'; {known}' if known else ''}{_end_of(spec.log)}"
    except EOFError:
        assert process is not None
        known = await process.explain()
        return f"the examiner {await process.wait()}{f'; {known}' if known else ''}{_end_of(spec.log)}"
    except AiperfError as error:  # of the launcher, or of the protocol
        return str(error)
    finally:
        if process is not None:
            await process.cancel(END_GRACE_S)


async def _ask(visit: Visit, process: ReplicaProcess, talk: Talk) -> Answer:
    request = ExamineRequest(config=visit.config, folder=str(visit.folder), steps=visit.steps)
    await process.send(write_request(request))
    samples = [await _clock_offset(visit.clock, process, talk)]
    samples += [await _clock_offset(visit.clock, process) for _ in range(CLOCK_SAMPLES - 1)]
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
    return ClockOffset(round(reply.utc_ms - sent_ms - trip_ms / 2), round(trip_ms / 2) + 1)


async def _line(process: ReplicaProcess) -> bytes:
    line = await process.receive()
    if not line:
        raise EOFError
    return line


def _end_of(log: Path) -> str:
    last = last_lines(log) if log.exists() else ""
    return f"; the end of its log: {last}" if last else ""
