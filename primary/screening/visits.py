"""The nodes of a screening: a program on each, started by the launcher, that answers orders.

A node that hangs, dies or prints nonsense costs its own line: it is lost with the reason, and the
others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aiperf.config.duration import format_duration
from aiperf.config.settings import RunConfig
from aiperf.errors import AiperfError, MessageError
from aiperf.processes import last_lines, python_module
from aiperf.screening.messages import (
    MeasureDevices,
    Present,
    ScreenRequest,
    Sheet,
    read_answer,
    write_request,
)
from aiperf.wire.lines import encode
from primary.environment import on_node
from primary.launchers import Launcher, ReplicaProcess, ReplicaSpec
from primary.launchers.talk import Talk

END_GRACE_S = 10.0
"""Seconds for a node's program to end what it has started."""


@dataclass(frozen=True, slots=True)
class Screening:
    """Common settings of the visits to all nodes."""

    config: RunConfig
    launcher: Launcher
    folder: Path
    """A scratch directory on the run's file system."""
    quick: bool
    devices: tuple[str, ...]
    steps: int
    limit_s: float
    """Longest time of a node for its start and for each order."""


@dataclass(slots=True)
class Visit:
    """One node, as the primary has it."""

    replica: int
    log: Path
    process: ReplicaProcess | None = None
    present: Present | None = None
    lost: str | None = None
    """Reason why the node gives no more answers."""
    sheets: list[Sheet] = field(default_factory=list)

    async def close(self) -> None:
        """End the node's program, if it was started."""
        if self.process is not None:
            process, self.process = self.process, None
            await process.cancel(END_GRACE_S)


async def open_visits(screening: Screening) -> list[Visit]:
    """Start the program on every node, all at once; those that do not answer are lost."""
    visits = [
        Visit(replica, screening.folder / f"screen-{replica:04d}.log")
        for replica in range(screening.config.run.replicas)
    ]
    try:
        await asyncio.gather(*(_begin(screening, visit) for visit in visits))
    except BaseException:
        await close_visits(visits)
        raise
    return visits


async def close_visits(visits: Sequence[Visit]) -> None:
    """End the programs of all nodes."""
    await asyncio.gather(*(visit.close() for visit in visits))


async def measure_devices(screening: Screening, visits: Sequence[Visit]) -> None:
    """One pass: every node measures its devices, all at once, and appends a sheet."""
    await asyncio.gather(*(_order(screening, visit) for visit in visits if visit.lost is None))


async def _begin(screening: Screening, visit: Visit) -> None:
    config = screening.config
    module = python_module(
        "replica.agent.screen",
        "--replica", str(visit.replica),
        "--share", str(screening.launcher.per_node),
        python=config.environment.python,
    )  # fmt: skip
    spec = ReplicaSpec(visit.replica, on_node(config.environment, module), visit.log)
    request = ScreenRequest(config=config, folder=str(screening.folder), quick=screening.quick,
                            devices=screening.devices, steps=screening.steps)  # fmt: skip

    async def start() -> None:
        visit.process = await screening.launcher.start(spec)
        await visit.process.send(write_request(request))
        answer = await _answer(visit, Talk(visit.log))
        if not isinstance(answer, Present):
            raise MessageError(f"expected the node's description, got {type(answer).__name__}")
        visit.present = answer

    await _within(screening, visit, start)


async def _order(screening: Screening, visit: Visit) -> None:
    async def measure() -> None:
        assert visit.process is not None
        await visit.process.send(encode(MeasureDevices()))
        answer = await _answer(visit)
        if not isinstance(answer, Sheet):
            raise MessageError(f"expected a sheet of measures, got {type(answer).__name__}")
        visit.sheets.append(answer)

    await _within(screening, visit, measure)


async def _within(screening: Screening, visit: Visit, work: Callable[[], Awaitable[None]]) -> None:
    """Do a piece of work with a node; if it fails or takes too long, the node is lost."""
    try:
        async with asyncio.timeout(screening.limit_s):
            await work()
    except TimeoutError:
        visit.lost = f"no answer within {format_duration(screening.limit_s)}{await _explained(visit)}"
    except EOFError:
        assert visit.process is not None
        visit.lost = f"its program {await visit.process.wait()}{await _explained(visit)}"
    except AiperfError as error:  # of the launcher, or of the protocol
        visit.lost = str(error)
    if visit.lost is not None:
        await visit.close()


async def _explained(visit: Visit) -> str:
    """What is known of an unexpected end, and the end of the node's log."""
    known = await visit.process.explain() if visit.process is not None else ""
    last = await asyncio.to_thread(last_lines, visit.log) if visit.log.exists() else ""
    return f"{f'; {known}' if known else ''}{f'; the end of its log: {last}' if last else ''}"


async def _answer(visit: Visit, talk: Talk | None = None) -> Present | Sheet:
    assert visit.process is not None
    while True:
        line = await visit.process.receive()
        if not line:
            raise EOFError
        answer = read_answer(line, first=talk is not None)
        if answer is not None:
            return answer
        assert talk is not None
        await asyncio.to_thread(talk.hear, line)
