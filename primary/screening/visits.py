"""The nodes of a screening: a program on each, started by the launcher, that answers orders.

A node that hangs, dies or prints nonsense costs its own line: it is lost with the reason, and the
others go on. Once half of the nodes have done a piece of work, the others have a few times as long
as the median took: a node that hangs does not hold the screening for the whole time limit.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import msgspec

from aiperf.config.duration import format_duration
from aiperf.config.settings import RunConfig
from aiperf.errors import AiperfError, MessageError
from aiperf.processes import last_lines, python_module
from aiperf.screening import messages
from aiperf.wire.lines import encode
from primary.environment import on_node
from primary.launchers import Launcher, ReplicaProcess, ReplicaSpec
from primary.launchers.talk import Talk

END_GRACE_S = 10.0
"""Seconds for a node's program to end what it has started."""

PATIENCE, PATIENCE_S = 5.0, 60.0
"""Times the median of the nodes that are done, and seconds more, that the others have.

A node that works at a fifth of the others' speed is still measured.
"""


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
    queues: bool = False
    """True if a node's start may wait in a queue, so that those of others say nothing about it."""


@dataclass(slots=True)
class Visit:
    """One node, as the primary has it."""

    replica: int
    log: Path
    process: ReplicaProcess | None = None
    present: messages.Present | None = None
    lost: str | None = None
    """Reason why the node gives no more answers."""
    sheets: list[messages.Sheet] = field(default_factory=list)

    def add(self, rows: Sequence[messages.Row]) -> None:
        """Add rows to the last sheet."""
        if self.sheets:
            last = self.sheets[-1]
            self.sheets[-1] = msgspec.structs.replace(last, rows=(*last.rows, *rows))

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
        together = Together(screening.limit_s, None if screening.queues else len(visits))
        await asyncio.gather(*(_begin(screening, visit, together) for visit in visits))
    except BaseException:
        await close_visits(visits)
        raise
    return visits


async def close_visits(visits: Sequence[Visit]) -> None:
    """End the programs of all nodes."""
    await asyncio.gather(*(visit.close() for visit in visits))


async def measure_devices(screening: Screening, visits: Sequence[Visit]) -> None:
    """One pass: every node measures its devices, all at once, and appends a sheet."""
    for visit, sheet in await _sheets(screening, visits, messages.MeasureDevices()):
        visit.sheets.append(sheet)


async def measure_storage(screening: Screening, visits: Sequence[Visit]) -> list[messages.Row]:
    """One pass of every node over its file systems, all at once; in addition to the last sheets.

    In the first pass the first node measures them alone before that: these rows are returned.
    """
    there = [visit for visit in visits if visit.lost is None]
    is_first = all(len(visit.sheets) < 2 for visit in there)
    alone = await _sheets(screening, there[:1], messages.MeasureStorage()) if is_first and len(there) > 1 else []
    for visit, sheet in await _sheets(screening, there, messages.MeasureStorage()):
        visit.add(sheet.rows)
    return [row for _, sheet in alone for row in sheet.rows]


async def _sheets(
    screening: Screening, visits: Sequence[Visit], order: messages.MeasureDevices | messages.MeasureStorage
) -> list[tuple[Visit, messages.Sheet]]:
    """The answers of all nodes that are there to an order."""
    there = [visit for visit in visits if visit.lost is None]
    together, found = Together(screening.limit_s, len(there)), list[tuple[Visit, messages.Sheet]]()
    await asyncio.gather(*(_order(visit, together, order, found) for visit in there))
    return found


class Together:
    """The time of a piece of work that nodes do at once, which ends soon after most have done it.

    `nodes` is None if the nodes do not begin at once: each has the whole limit.
    """

    def __init__(self, limit_s: float, nodes: int | None) -> None:
        self._began = asyncio.get_running_loop().time()
        self._allowed_s, self._nodes = limit_s, nodes
        self._took: list[float] = []
        self._running: set[asyncio.Timeout] = set()

    async def do(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do one node's work. Raises TimeoutError, in words, if it takes too long."""
        try:
            async with asyncio.timeout_at(self._began + self._allowed_s) as timeout:
                self._running.add(timeout)
                try:
                    await work()
                finally:
                    self._running.discard(timeout)
        except TimeoutError:
            typical = f"; the median of the others: {format_duration(median(self._took))}" if self._took else ""
            raise TimeoutError(f"no answer within {format_duration(self._allowed_s)}{typical}") from None
        self._done()

    def _done(self) -> None:
        self._took.append(asyncio.get_running_loop().time() - self._began)
        if self._nodes is None or 2 * len(self._took) < self._nodes:
            return
        self._allowed_s = min(self._allowed_s, PATIENCE * median(self._took) + PATIENCE_S)
        for timeout in self._running:
            timeout.reschedule(self._began + self._allowed_s)


async def _begin(screening: Screening, visit: Visit, together: Together) -> None:
    config = screening.config
    module = python_module(
        "replica.agent.screen",
        "--replica",
        str(visit.replica),
        "--share",
        str(screening.launcher.per_node),
        python=config.environment.python,
    )
    spec = ReplicaSpec(visit.replica, on_node(config.environment, module), visit.log)
    request = messages.ScreenRequest(
        config=config,
        folder=str(screening.folder),
        quick=screening.quick,
        devices=screening.devices,
        steps=screening.steps,
    )

    async def start() -> None:
        visit.process = await screening.launcher.start(spec)
        await visit.process.send(messages.write_request(request))
        answer = await answer_of(visit, Talk(visit.log))
        if not isinstance(answer, messages.Present):
            raise MessageError(f"expected the node's description, got {type(answer).__name__}")
        visit.present = answer

    await within(together, visit, start)


async def _order(
    visit: Visit,
    together: Together,
    order: messages.MeasureDevices | messages.MeasureStorage,
    found: list[tuple[Visit, messages.Sheet]],
) -> None:
    async def measure() -> None:
        assert visit.process is not None
        await visit.process.send(encode(order))
        answer = await answer_of(visit)
        if not isinstance(answer, messages.Sheet):
            raise MessageError(f"expected a sheet of measures, got {type(answer).__name__}")
        found.append((visit, answer))

    await within(together, visit, measure)


async def within(together: Together, visit: Visit, work: Callable[[], Awaitable[None]]) -> None:
    """Do a piece of work with a node; if it fails or takes too long, the node is lost."""
    try:
        await together.do(work)
    except TimeoutError as error:
        visit.lost = f"{error}{await _explained(visit)}"
    except EOFError:
        assert visit.process is not None
        visit.lost = f"its program {await visit.process.wait()}{await _explained(visit)}"
    except AiperfError as error:  # of the launcher, or of the protocol
        visit.lost = str(error)
    if visit.lost is not None:
        await visit.close()


async def _explained(visit: Visit) -> str:
    """The known reason of an unexpected end, and the end of the node's log."""
    known = await visit.process.explain() if visit.process is not None else ""
    last = await asyncio.to_thread(last_lines, visit.log) if visit.log.exists() else ""
    return f"{f'; {known}' if known else ''}{f'; the end of its log: {last}' if last else ''}"


async def answer_of(visit: Visit, talk: Talk | None = None) -> messages.Answer:
    """The next answer of a node; `talk` takes what is none, before the first one.

    Raises EOFError if there is none, and MessageError.
    """
    assert visit.process is not None
    while True:
        line = await visit.process.receive()
        if not line:
            raise EOFError
        answer = messages.read_answer(line, first=talk is not None)
        if answer is not None:
            return answer
        assert talk is not None
        await asyncio.to_thread(talk.hear, line)
