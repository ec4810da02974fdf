"""The primary at work: start barrier, asynchronous jobs, deadline, orderly end. One coroutine a replica."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from dataclasses import dataclass
from typing import Literal

from aiperf.clock import Clock
from aiperf.config import RunConfig
from aiperf.errors import LaunchError
from aiperf.files import write_atomically
from aiperf.history import HistoryWriter
from aiperf.messages import Finished, Job, Progress, Ready, Stop
from aiperf.paths import RunPaths
from aiperf.records import JobIssued, ReplicaLost, ReplicaReady, RunEnded, RunReleased
from aiperf.seeds import fold_seed
from primary.launchers import Launcher, ReplicaSpec
from primary.replica_link import ClockOffset, ReplicaGoneError, ReplicaLink
from primary.schedule import Step, next_step
from primary.view import Display, ReplicaView, RunView

log = logging.getLogger(__name__)

REFRESH_S = 1.0
KILL_GRACE_S = 5.0

EndReason = Literal["deadline", "interrupted", "no_replicas"]


@dataclass(frozen=True)
class RunContext:
    """What a run is made of."""

    config: RunConfig
    paths: RunPaths
    launcher: Launcher
    writer: HistoryWriter
    clock: Clock
    display: Display


class Dispatcher:
    """Runs one run. `interrupt` may be called at any time, from a signal handler."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._config = context.config
        self._view = RunView(self._config.run.duration, [ReplicaView(r) for r in range(self._config.run.replicas)])
        self._links: dict[int, ReplicaLink] = {}
        self._nodes: dict[str, dict[str, str | int | float | None]] = {}
        self._answered: set[int] = set()
        self._changed = asyncio.Event()
        self._released = asyncio.Event()
        self._stopping = asyncio.Event()
        self._last_trial = 0
        self._release_ms = 0

    def interrupt(self) -> None:
        """Ask for an orderly end now."""
        self._stopping.set()

    async def run(self) -> EndReason:
        """Start the replicas, release them together, hand out jobs until the deadline, end them all."""
        replicas = [asyncio.create_task(self._serve(view)) for view in self._view.replicas]
        ticker = asyncio.create_task(self._tick())
        try:
            reason: EndReason = "interrupted"
            if await self._barrier():
                self._release()
                reason = await self._until_end(replicas)
            elif not self._stopping.is_set():
                reason = "no_replicas"
            self._record_end(reason)
        finally:
            self._stopping.set()
            await self._stop_all(replicas)
            ticker.cancel()
            self._context.display.refresh(self._view)
            self._context.display.close()
        return reason

    async def _barrier(self) -> bool:
        """Wait until every replica is ready or lost, at most `start_timeout`; True where any is ready."""
        try:
            async with asyncio.timeout(self._config.run.start_timeout):
                while len(self._answered) < len(self._view.replicas) and not self._stopping.is_set():
                    await self._wait_for_change()
        except TimeoutError:
            late = len(self._view.replicas) - len(self._answered)
            self._event(f"{late} replica(s) not ready within {self._config.run.start_timeout:.0f} s; starting without")
        return bool(self._ready_replicas()) and not self._stopping.is_set()

    async def _wait_for_change(self) -> None:
        stop = asyncio.create_task(self._stopping.wait())
        change = asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait({stop, change}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
            change.cancel()
        self._changed.clear()

    def _ready_replicas(self) -> tuple[int, ...]:
        return tuple(view.replica for view in self._view.replicas if view.state == "ready")

    def _release(self) -> None:
        ready = self._ready_replicas()
        duration_ms = round(self._config.run.duration * 1000)
        record = self._context.writer.append(RunReleased(duration_ms=duration_ms, ready=ready))
        self._release_ms = record.time_ms
        self._view.elapsed_s = 0.0
        self._event(
            f"{len(ready)} of {len(self._view.replicas)} replicas released for {self._config.run.duration:.0f} s"
        )
        self._released.set()

    async def _until_end(self, replicas: list[asyncio.Task[None]]) -> EndReason:
        left_s = self._config.run.duration - (self._context.clock.utc_ms() - self._release_ms) / 1000
        everyone = asyncio.ensure_future(self._all_lost(replicas))
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            done, _ = await asyncio.wait((everyone, stop), timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if everyone in done:
                everyone.result()
                return "no_replicas"
            return "interrupted" if done else "deadline"
        finally:
            everyone.cancel()
            stop.cancel()

    @staticmethod
    async def _all_lost(replicas: list[asyncio.Task[None]]) -> bool:
        for replica in asyncio.as_completed(replicas):
            await replica  # an error of the primary itself, such as a full disk, ends the run here
        return True

    def _record_end(self, reason: EndReason) -> None:
        now_ms = self._context.clock.utc_ms()
        end_ms = self._release_ms + round(self._config.run.duration * 1000) if reason == "deadline" else now_ms
        lost = [view.replica for view in self._view.replicas if view.state == "lost"]
        detail = f"replicas lost: {', '.join(map(str, lost))}" if lost else ""
        self._context.writer.append(RunEnded(reason=reason, end_ms=end_ms, detail=detail))
        self._event(f"run ended: {reason}{f' ({detail})' if detail else ''}")

    async def _stop_all(self, replicas: list[asyncio.Task[None]]) -> None:
        await asyncio.gather(*(link.send(Stop(reason="the run has ended")) for link in self._links.values()))
        _, pending = await asyncio.wait(replicas, timeout=self._config.run.stop_grace)
        for task in pending:
            task.cancel()
        await asyncio.gather(*(link.cancel(KILL_GRACE_S) for link in self._links.values()))
        await asyncio.gather(*replicas, return_exceptions=True)

    async def _serve(self, view: ReplicaView) -> None:
        try:
            link = await self._start(view.replica)
            ready, offset = await link.handshake(self._context.clock)
            self._welcome(view, ready, offset)
            await self._released.wait()
            await self._work(view, link)
        except (LaunchError, ReplicaGoneError) as error:
            self._lose(view, str(error))

    async def _start(self, replica: int) -> ReplicaLink:
        spec = ReplicaSpec(
            replica=replica,
            command=(
                sys.executable, "-m", "replica",
                "--run", str(self._context.paths.root.absolute()),
                "--replica", str(replica),
                "--share", str(len(self._view.replicas)),
            ),
            log=self._context.paths.replica_log(replica),
        )  # fmt: skip
        link = ReplicaLink(await self._context.launcher.start(spec), spec)
        self._links[replica] = link
        if self._stopping.is_set():
            await link.send(Stop(reason="the run has ended"))
        return link

    def _welcome(self, view: ReplicaView, ready: Ready, offset: ClockOffset) -> None:
        self._context.writer.append(
            ReplicaReady(
                replica=view.replica,
                writer=ready.writer,
                accelerators=ready.accelerators,
                clock_offset_ms=offset.applied_ms,
            )
        )
        self._nodes[str(view.replica)] = ready.node
        write_atomically(self._context.paths.system, json.dumps(self._nodes, indent=2).encode() + b"\n")
        view.state = "ready"
        self._answer(view.replica)

    async def _work(self, view: ReplicaView, link: ReplicaLink) -> None:
        failures, step = 0, Step()
        view.state = "working"
        while not self._stopping.is_set():
            if failures >= self._config.replica.max_failed_trials:
                raise ReplicaGoneError(f"put aside after {failures} failed trials in a row")
            finished = await self._training(view, link, step)
            failures = 0 if finished.completed else failures + 1
            step = next_step(step, finished.trial, finished.completed, self._config.search)
        await link.drain()
        view.state = "stopped"

    async def _training(self, view: ReplicaView, link: ReplicaLink, step: Step) -> Finished:
        self._last_trial += 1
        trial, view.round = self._last_trial, step.round
        seed = fold_seed(self._config.run.seed, "train", trial, view.replica)
        job = Job(trial=trial, round=step.round, seed=seed, point=step.point, base=step.base)
        self._context.writer.append(JobIssued(replica=view.replica, **job.model_dump(exclude={"type"})))
        await link.send(job)
        while isinstance(event := await link.next_event(), Progress):
            view.take(event)
        point = f", point {step.point}" if step.point else ""
        name = f"replica {view.replica}: trial {trial} (round {step.round}{point})"
        if event.completed:
            view.trials += 1
            self._event(f"{name} done")
        elif not self._stopping.is_set():
            self._event(f"{name} FAILED: {event.reason}")
        return event

    def _lose(self, view: ReplicaView, reason: str) -> None:
        if self._stopping.is_set():
            view.state = "stopped"
        else:
            view.state = "lost"
            self._context.writer.append(ReplicaLost(replica=view.replica, reason=reason[:4000]))
            self._event(f"replica {view.replica} LOST: {reason}")
        self._answer(view.replica)

    def _answer(self, replica: int) -> None:
        self._answered.add(replica)
        self._changed.set()

    def _event(self, text: str) -> None:
        log.info("%s", text)
        self._context.display.event(text)

    async def _tick(self) -> None:
        while True:
            if self._release_ms:
                self._view.elapsed_s = (self._context.clock.utc_ms() - self._release_ms) / 1000
            self._context.display.refresh(self._view)
            await asyncio.sleep(REFRESH_S)
