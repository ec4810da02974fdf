"""The primary at work: start barrier, asynchronous jobs, deadline, orderly end. One coroutine a replica."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from aiperf.config.settings import RunConfig
from aiperf.errors import LaunchError
from aiperf.files import remove_temporaries, write_atomically
from aiperf.history.files import HistoryWriter
from aiperf.history.records import JobIssued, ReplicaLost, ReplicaReady, RunEnded, RunReleased
from aiperf.messages import CANCELLED, Cancel, Finished, Job, Progress, Ready, Started, Stop
from aiperf.processes import python_module
from aiperf.run_directory.claim import TOUCH_INTERVAL_S, Claim
from aiperf.run_directory.paths import RunPaths
from primary.display.view import Display, ReplicaView, RunView
from primary.launchers import Launcher, ReplicaSpec
from primary.managers.contract import EndReason, Manager
from primary.replica_link import ClockOffset, ReplicaGoneError, ReplicaLink
from primary.worklist import WorkList

log = logging.getLogger(__name__)

REFRESH_S = 1.0
KILL_GRACE_S = 5.0
MAX_PAUSE_S = 60.0


@dataclass(frozen=True)
class RunContext:
    """What a run is made of."""

    config: RunConfig
    paths: RunPaths
    launcher: Launcher
    writer: HistoryWriter
    display: Display
    work: WorkList
    claim: Claim
    manager: Manager
    released_ms: int | None = None
    """When the replicas of a resumed run were released; the time since then has passed."""


def agent_command(context: RunContext, replica: int) -> tuple[str, ...]:
    """The command line of an agent, in the environment that the configuration describes."""
    settings = context.config.environment
    agent = python_module(
        "replica",
        "--run", str(context.paths.root.absolute()),
        "--replica", str(replica),
        "--share", str(context.launcher.per_node),
        python=settings.python,
    )  # fmt: skip
    contained = (*settings.container, *agent)
    if settings.activate is None:
        return contained
    # The words come as arguments, so that nothing in them is read as shell.
    return ("bash", "-c", f'{settings.activate}\nexec "$@"', "bash", *contained)


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
        self._hurry = asyncio.Event()
        self._in_progress: dict[int, Job] = {}
        self._release_ms = 0

    def interrupt(self) -> None:
        """Ask for an orderly end now; asked again, do not wait for the replicas."""
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()

    async def cancel(self, trial: int, reason: str) -> None:
        """Ask for the end of one trial; nothing happens where it is not in progress."""
        for replica, job in self._in_progress.items():
            if job.trial == trial:
                await self._links[replica].send(Cancel(trial=trial, reason=reason))
                return

    async def run(self) -> EndReason:
        """Start the replicas, release them together, hand out jobs until the deadline, end them all."""
        replicas = [asyncio.create_task(self._serve(view)) for view in self._view.replicas]
        ticker = asyncio.create_task(self._tick())
        reason: EndReason = "interrupted"
        try:
            if self._context.released_ms is not None or await self._barrier():
                self._release()
                reason = await self._until_end(replicas)
            elif not self._stopping.is_set():
                reason = "no_replicas"
            self._record_end(reason)
        finally:
            self._stopping.set()
            await self._stop_all(replicas)
            ticker.cancel()
            self._tidy(reason)
            self._context.manager.closed(reason)
            self._context.display.refresh(self._view)
            self._context.display.close()
        return reason

    def _tidy(self, reason: EndReason) -> None:
        """Remove what killed processes have left, and at the deadline what only a resumption would need."""
        try:
            remove_temporaries(self._context.paths.root)
            if reason == "deadline":
                for checkpoint in self._context.paths.checkpoints():
                    checkpoint.unlink(missing_ok=True)
        except OSError as error:  # disk space, not correctness
            log.warning("not everything could be tidied up: %s", error)

    async def _barrier(self) -> bool:
        """Wait until every replica is ready or lost, at most `start_timeout`; True where any is ready."""
        try:
            async with asyncio.timeout(self._config.run.start_timeout):
                while len(self._answered) < len(self._view.replicas) and not self._stopping.is_set():
                    await self._or_end(self._changed.wait())
                    self._changed.clear()
        except TimeoutError:
            late = len(self._view.replicas) - len(self._answered)
            self._event(f"{late} replica(s) not ready within {self._config.run.start_timeout:.0f} s; starting without")
        return bool(self._ready_replicas()) and not self._stopping.is_set()

    async def _or_end(self, awaited: Coroutine[Any, Any, object]) -> None:
        """Wait for something, or for the end of the run where that comes first."""
        tasks = {asyncio.create_task(awaited), asyncio.create_task(self._stopping.wait())}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    def _ready_replicas(self) -> tuple[int, ...]:
        return tuple(view.replica for view in self._view.replicas if view.state == "ready")

    def _release(self) -> None:
        duration_s, ready = self._config.run.duration, self._ready_replicas()
        if self._context.released_ms is None:
            body = RunReleased(duration_ms=round(duration_s * 1000), ready=ready)
            self._release_ms = self._context.writer.append(body).time_ms
            self._event(f"{len(ready)} of {len(self._view.replicas)} replicas released for {duration_s:.0f} s")
        else:
            self._release_ms = self._context.released_ms
            self._event(f"the run goes on; {self._elapsed_s():.0f} of {duration_s:.0f} s have passed")
        self._view.elapsed_s = self._elapsed_s()
        self._context.manager.released(self._left_s())
        self._released.set()

    def _elapsed_s(self) -> float:
        return (self._context.writer.clock.utc_ms() - self._release_ms) / 1000

    def _left_s(self) -> float:
        return self._config.run.duration - self._elapsed_s()

    async def _until_end(self, replicas: list[asyncio.Task[None]]) -> EndReason:
        everyone = asyncio.ensure_future(self._all_lost(replicas))
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            done, _ = await asyncio.wait((everyone, stop), timeout=self._left_s(), return_when=asyncio.FIRST_COMPLETED)
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
        now_ms = self._context.writer.clock.utc_ms()
        end_ms = self._release_ms + round(self._config.run.duration * 1000) if reason == "deadline" else now_ms
        lost = [view.replica for view in self._view.replicas if view.state == "lost"]
        detail = f"replicas lost: {', '.join(map(str, lost))}" if lost else ""
        self._context.writer.append(RunEnded(reason=reason, end_ms=end_ms, detail=detail))
        self._event(f"run ended: {reason}{f' ({detail})' if detail else ''}")

    async def _stop_all(self, replicas: list[asyncio.Task[None]]) -> None:
        await asyncio.gather(*(link.send(Stop(reason="the run has ended")) for link in self._links.values()))
        orderly = asyncio.ensure_future(asyncio.wait(replicas))
        hurry = asyncio.ensure_future(self._hurry.wait())
        grace_s = self._config.run.stop_grace
        await asyncio.wait((orderly, hurry), timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        for task in (orderly, hurry, *replicas):
            task.cancel()
        await asyncio.gather(*(link.cancel(KILL_GRACE_S) for link in self._links.values()))
        await asyncio.gather(*replicas, return_exceptions=True)

    async def _serve(self, view: ReplicaView) -> None:
        """Serve a replica, and start it again where it died, until the run ends."""
        for attempt in range(self._config.replica.restarts + 1):
            try:
                await self._serve_once(view)
                return
            except ReplicaGoneError as error:
                self._lose(view, str(error))
                await self._links[view.replica].cancel(KILL_GRACE_S)
                if self._stopping.is_set() or not error.restart or attempt == self._config.replica.restarts:
                    return
            except LaunchError as error:
                self._lose(view, str(error))
                return
            await self._pause(attempt)
            if self._stopping.is_set():
                return
            view.state = "starting"
            self._event(f"replica {view.replica} is started again")

    async def _serve_once(self, view: ReplicaView) -> None:
        link = await self._start(view.replica)
        ready, offset = await link.handshake(self._context.writer.clock)
        self._welcome(view, ready, offset)
        await self._released.wait()
        await self._work(view, link)

    async def _pause(self, failures: int) -> None:
        """Before the next attempt; ends early when the run does."""
        await self._or_end(asyncio.sleep(min(MAX_PAUSE_S, self._config.replica.retry_delay * 2**failures)))

    async def _start(self, replica: int) -> ReplicaLink:
        spec = ReplicaSpec(
            replica=replica,
            command=agent_command(self._context, replica),
            log=self._context.paths.replica_log(replica),
        )
        process = await self._context.launcher.start(spec)
        link = ReplicaLink(process, spec, self._config.run.replica_silence)
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
        failures = 0
        view.state = "working"
        while not self._stopping.is_set():
            if failures >= self._config.replica.max_failed_trials:
                raise ReplicaGoneError(f"put aside after {failures} failed trials in a row", restart=False)
            if failures:
                await self._pause(failures - 1)
            await self._or_end(self._context.manager.turn(view.replica))
            if not self._stopping.is_set():
                finished = await self._training(view, link)
                if finished.completed:
                    failures = 0
                elif finished.kind != CANCELLED:
                    failures += 1
        await link.drain()
        view.state = "stopped"

    async def _training(self, view: ReplicaView, link: ReplicaLink) -> Finished:
        job = self._context.work.next_job(view.replica)
        view.round = job.round
        self._in_progress[view.replica] = job
        self._context.writer.append(JobIssued(replica=view.replica, **job.model_dump(exclude={"type"})))
        self._context.manager.issued(view.replica, job)
        await link.send(job)
        while not isinstance(event := await link.next_event(), Finished):
            if isinstance(event, Started):
                self._context.manager.started(event)
            else:
                self._note_epoch(view, event)
                view.take(event)
        del self._in_progress[view.replica]
        self._context.manager.over(job.trial)
        self._context.work.finished(view.replica, job, event)
        self._tell_end(view, job, event)
        return event

    @staticmethod
    def _note_epoch(view: ReplicaView, event: Progress) -> None:
        """What the primary was told of is in its log: the history list must have it."""
        known = view.progress.epoch if view.progress and view.progress.trial == event.trial else 0
        if event.epoch > known:
            log.info("replica %d: trial %d completed epoch %d", view.replica, event.trial, event.epoch)

    def _tell_end(self, view: ReplicaView, job: Job, event: Finished) -> None:
        point = f", point {job.point}" if job.point else ""
        resumed = f", resumes trial {job.resumes}" if job.resumes is not None else ""
        name = f"replica {view.replica}: trial {job.trial} (round {job.round}{point}{resumed})"
        if event.completed:
            view.trials += 1
            self._event(f"{name} done")
        elif not self._stopping.is_set():
            self._event(f"{name} FAILED: {event.reason}")

    def _lose(self, view: ReplicaView, reason: str) -> None:
        if self._stopping.is_set():
            view.state = "stopped"
        else:
            view.state = "lost"
            self._context.writer.append(ReplicaLost(replica=view.replica, reason=reason[:4000]))
            self._event(f"replica {view.replica} LOST: {reason}")
            if view.replica in self._in_progress:
                job = self._in_progress.pop(view.replica)
                self._context.work.lost(view.replica, job)
                self._context.manager.over(job.trial)
        self._answer(view.replica)

    def _answer(self, replica: int) -> None:
        self._answered.add(replica)
        self._changed.set()

    def _event(self, text: str) -> None:
        log.info("%s", text)
        self._context.display.event(text)

    async def _tick(self) -> None:
        touched_s = 0.0
        while True:
            if time.monotonic() - touched_s > TOUCH_INTERVAL_S:
                touched_s = time.monotonic()
                self._context.claim.touch()
            if self._release_ms:
                self._view.elapsed_s = self._elapsed_s()
            self._context.display.refresh(self._view)
            await asyncio.sleep(REFRESH_S)
