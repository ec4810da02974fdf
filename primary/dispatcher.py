"""A run from its start barrier to its orderly end, and the upkeep once a second.

Each replica is served by a `ReplicaServer` meanwhile. The upkeep keeps the claim alive, checks the
placement of replicas, redraws the live view, and announces the heads of the primary's file.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

from aiperf.clock import wait_awake
from aiperf.errors import AiperfError, RunHeldError
from aiperf.files import remove_temporaries
from aiperf.machine.node import NodeFacts
from aiperf.records.bodies import PrimaryPaused, RunEnded, RunReleased
from aiperf.run_directory.claim import TOUCH_INTERVAL_S
from aiperf.run_directory.recorded_files import Beginning
from aiperf.storage.patience import once_more
from primary.background.heads import HeadLines
from primary.background.keeper import ClaimKeeper
from primary.context import Milestones, RunContext, SystemFile, give_back, recorded_files
from primary.display.state import LiveRun
from primary.managers import EndReason
from primary.nodes.placement import PlacementCheck
from primary.replica_server import KILL_GRACE_S, ReplicaServer

log = logging.getLogger(__name__)

REFRESH_S = 1.0

ASKED_TOGETHER = 16
"""Replicas that are asked at a time why they have not come."""

WAITING_NOTICE_S, NEXT_NOTICE_S = 15.0, 60.0
"""Seconds until the first notice of a start that takes long, and between further ones."""

FINISHED = ("deadline", "completed")
"""Ends after which a run is not resumed."""

LATE_S = 5.0
"""A primary that ticks later than this was suspended or stopped, or waited for its storage."""


class _Upkeep:
    """Tasks that are due once a second while a run is in progress."""

    def __init__(self, context: RunContext, claim: ClaimKeeper, view: LiveRun, system: SystemFile) -> None:
        self._context = context
        self._claim = claim
        self._view = view
        self._system = system
        self._heads = HeadLines(context.writer, context.announce, context.config.run.heads)
        self._placement = PlacementCheck(context.config, context.launcher.per_node)
        self.release_ms = 0
        """UTC of the release; 0 before it."""

    def elapsed_s(self) -> float:
        """Seconds since the release."""
        return (self._context.clock.utc_ms() - self.release_ms) / 1000

    def release(self) -> None:
        """Show the release."""
        self._view.elapsed_s = self.elapsed_s()
        self._heads.look(self.elapsed_s())

    def close(self) -> None:
        """Show the end."""
        self._heads.last()
        self._context.display.refresh(self._view)
        self._context.display.close()

    async def tick(self) -> None:
        """Once a second: keep the claim alive, describe late replicas, redraw the live view."""
        clock, late_s = self._context.clock, 0.0
        while True:
            self._claim.look(TOUCH_INTERVAL_S)
            self._note_lateness(late_s)
            try:
                await self._show()
            except AiperfError:
                raise
            except Exception:  # of what is only shown
                log.exception("the live view cannot be brought up to date")
            slept_s = clock.monotonic_s()
            await clock.sleep(REFRESH_S)
            # Only the sleep is timed, not the work of this tick: what makes a sleep late has
            # stopped the whole process.
            late_s = clock.monotonic_s() - slept_s - REFRESH_S

    async def _show(self) -> None:
        if self.release_ms and self._context.claim.lost is None:
            self._view.elapsed_s = self.elapsed_s()
            self._heads.look(self.elapsed_s())
            self.check_placement()
            await self._system.keep(self._context.clock)
        self._context.writer.look()
        self._context.display.refresh(self._view)

    def _note_lateness(self, late_s: float) -> None:
        """Record that the primary stood still; `wait_awake` takes it into account."""
        if late_s > LATE_S and self._context.claim.lost is None:
            self._context.writer.append(PrimaryPaused(duration_ms=round(late_s * 1000)))
            self._context.announce(
                f"WARNING: the primary stood still for {late_s:.0f} s: suspended, stopped, or waiting for its storage; "
                "this time does not count as silence of the replicas"
            )

    def check_placement(self) -> None:
        """Warn of replicas that are not where they should be."""
        present = (view.replica for view in self._view.replicas if view.state in ("ready", "working"))
        for text in self._system.check(self._placement, present):
            self._context.announce(f"WARNING: {text}")


class Dispatcher:
    """Runs one run. `interrupt` may be called at any time, from a signal handler."""

    def __init__(self, context: RunContext, node: NodeFacts | None = None) -> None:
        """`node`: description of the node on which this runs."""
        self._context = context
        self._config = context.config
        self._milestones = Milestones()
        self._system = SystemFile(context.paths.system, node)
        self._view = LiveRun.of(self._config.run, context.earlier)
        self._servers = [ReplicaServer(context, self._milestones, self._system, view) for view in self._view.replicas]
        self.claim = ClaimKeeper(context.claim, self._end_superseded)
        self._upkeep = _Upkeep(context, self.claim, self._view, self._system)
        self._hurry = asyncio.Event()
        self._stop: asyncio.Task[None] | None = None
        """Stops the replicas, if that begins before the end is recorded."""
        self._error: BaseException | None = None
        """Ends the run: the first error of a replica's server, or of the ticks, that got out."""

    def _end_superseded(self, lost: RunHeldError) -> None:
        self._context.announce(f"WARNING: {lost}; its work from the other one's start on does not count")
        self._milestones.stopping.set()

    def interrupt(self) -> None:
        """Ask for an orderly end; a second call ends the run without waiting for the replicas."""
        if self._milestones.stopping.is_set():
            self._hurry.set()
        self._milestones.stopping.set()

    async def cancel(self, trial: int, reason: str) -> None:
        """Ask for the end of one trial; does nothing if it is not in progress."""
        for server in self._servers:
            if await server.cancel(trial, reason):
                return

    async def run(self) -> EndReason:
        """Run to the end: start the replicas, release them, wait for the deadline, stop them."""
        replicas = [self._watched(server.serve()) for server in self._servers]
        ticker = self._watched(self._upkeep.tick())
        reason: EndReason = "interrupted"
        try:
            if self._context.released_ms is not None or await self._barrier():  # resumed: its time passes already
                self._release()
                reason = await self._until_end(replicas)
            elif not self._milestones.stopping.is_set():
                reason = "no_replicas"
            if self._error is not None:
                raise self._error
            if await self.claim.certain():  # else the end is another primary's to record
                await self._record_end(reason, replicas)
        finally:
            self._milestones.stopping.set()
            try:
                await (self._stop or self._stop_all(replicas))
            finally:
                ticker.cancel()  # not before: the claim is kept until the replicas have ended
                self._close(reason)
        return reason

    def _watched(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.add_done_callback(self._note_end)
        return task

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error = self._error or error
            self._milestones.stopping.set()
            # Also wakes the barrier, which may wait for replicas that will not come.
            self._milestones.changed.set()

    def _close(self, reason: EndReason) -> None:
        if self._context.claim.lost is None:
            _tidy(self._context, self._system, reason)
        self._context.manager.closed(reason)
        self._upkeep.close()

    async def _barrier(self) -> bool:
        """Wait for every replica to be ready or lost, up to a limit; True if any is ready."""
        milestones, limit_s = self._milestones, self._config.start_limit
        if (suite := self._config.micro.suite) != "none":
            self._context.announce(f"the micro suite ({suite}) measures every node before the release")
        notice = asyncio.create_task(self._note_waiting())
        try:
            # Time in which this process was suspended is not charged to the replicas.
            await wait_awake(self._all_answered, limit_s)
        except TimeoutError:
            await self._note_absent(limit_s)
        finally:
            notice.cancel()
        return await self.claim.certain() and bool(self._ready_replicas()) and not milestones.stopping.is_set()

    async def _note_waiting(self) -> None:
        """Say what a start waits for that takes long, and what has changed every minute."""
        await self._context.clock.sleep(WAITING_NOTICE_S)
        said: list[str] = []
        while True:
            late = [server for server in self._servers if server.is_awaited]
            turn = asyncio.Semaphore(ASKED_TOGETHER)
            reasons = await asyncio.gather(*(server.awaited(turn) for server in late[:ASKED_TOGETHER]))
            lines = [
                f"waiting for {reasons.count(reason)} of {len(self._servers)} replicas, each for {reason}"
                for reason in dict.fromkeys(reasons)
            ]
            for line in lines if lines != said else ():
                self._context.announce(line)
            said = lines
            await self._context.clock.sleep(NEXT_NOTICE_S)

    async def _note_absent(self, limit_s: float) -> None:
        """Record which replicas are not there, and why, as far as that is known in a moment."""
        late = [server for server in self._servers if server.is_awaited]
        self._context.announce(f"{len(late)} of {len(self._servers)} replicas not ready within {limit_s:.0f} s")
        turn = asyncio.Semaphore(ASKED_TOGETHER)
        await asyncio.gather(*(server.note_absence(limit_s, turn) for server in late))

    async def _all_answered(self) -> None:
        milestones = self._milestones
        while len(milestones.answered) < len(self._servers) and not milestones.stopping.is_set():
            await milestones.or_end(milestones.changed.wait())
            milestones.changed.clear()

    def _ready_replicas(self) -> tuple[int, ...]:
        return tuple(view.replica for view in self._view.replicas if view.state == "ready")

    def _release(self) -> None:
        duration_s, ready = self._config.run.duration, self._ready_replicas()
        self._upkeep.check_placement()
        if self._context.released_ms is None:
            body = RunReleased(duration_ms=round(duration_s * 1000), ready=ready)
            self._upkeep.release_ms = self._context.writer.append(body).time_ms
            self._context.announce(f"{len(ready)} of {len(self._servers)} replicas released for {duration_s:.0f} s")
        else:
            self._upkeep.release_ms = self._context.released_ms
            self._view.resumed_s = self._upkeep.elapsed_s()
            self._context.announce(f"run resumed; {self._upkeep.elapsed_s():.0f} of {duration_s:.0f} s have passed")
        self._upkeep.release()
        self._context.manager.released(self._left_s())
        self._milestones.released.set()

    def _left_s(self) -> float:
        return self._config.run.duration - self._upkeep.elapsed_s()

    async def _until_end(self, replicas: list[asyncio.Task[None]]) -> EndReason:
        # In this order: of several ends in one turn of the loop the first one is the reason.
        ends: dict[asyncio.Future[Any], EndReason] = {
            asyncio.ensure_future(self._milestones.complete.wait()): "completed",
            asyncio.ensure_future(self._milestones.stopping.wait()): "interrupted",
            asyncio.ensure_future(asyncio.wait(replicas)): "no_replicas",
        }
        try:
            done, _ = await asyncio.wait(ends, timeout=self._left_s(), return_when=asyncio.FIRST_COMPLETED)
            return next((reason for end, reason in ends.items() if end in done), "deadline")
        finally:
            for end in ends:
                end.cancel()

    async def _record_end(self, reason: EndReason, replicas: list[asyncio.Task[None]]) -> None:
        await give_back(self._context.reserve)
        now_ms = self._context.clock.utc_ms()
        # The planned moment, not the one at which the loop woke: a late wake-up must not make the
        # measured time longer.
        end_ms = self._upkeep.release_ms + round(self._config.run.duration * 1000) if reason == "deadline" else now_ms
        lost = [view.replica for view in self._view.replicas if view.state == "lost"]
        absent = [view.replica for view in self._view.replicas if view.state == "starting"]
        details = (named(lost, len(self._servers), "lost"), named(absent, len(self._servers), "not there"))
        detail = "; ".join(filter(None, details))
        # A simulated run claims nothing about its nodes, and the same seed gives the same records.
        # After an end that may be resumed nothing may be recorded, or waited for, since `now_ms`.
        simulated = self._config.training.trainer == "simulated"
        files = () if simulated or reason not in FINISHED else await self._files(replicas)
        self._context.writer.append(RunEnded(reason=reason, end_ms=end_ms, detail=detail, files=files))
        self._context.announce(f"run ended: {reason}{f' ({detail})' if detail else ''}")

    async def _files(self, replicas: list[asyncio.Task[None]]) -> tuple[Beginning, ...]:
        """Read nodes and samples, and stop the replicas meanwhile: storage may take long."""
        self._milestones.stopping.set()
        self._stop = asyncio.create_task(self._stop_all(replicas))
        return await recorded_files(self._context, self._system, self._hurry)

    async def _stop_all(self, replicas: list[asyncio.Task[None]]) -> None:
        """Stop all replicas, within `stop_grace` or until a second interruption; kill the rest."""
        orderly = asyncio.ensure_future(_stopped(self._servers, replicas))
        hurry = asyncio.ensure_future(self._hurry.wait())
        grace_s = self._config.run.stop_grace
        await asyncio.wait((orderly, hurry), timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        for task in (orderly, hurry, *replicas):
            task.cancel()
        # Also after an orderly end: children of a replica may be left, which its launcher ends.
        await asyncio.gather(*(server.kill(KILL_GRACE_S) for server in self._servers))
        # Cancelled tasks must have ended before the pipes are read by another reader.
        await asyncio.gather(*replicas, return_exceptions=True)
        await asyncio.gather(*(server.conclude() for server in self._servers))


def _tidy(context: RunContext, system: SystemFile, reason: EndReason) -> None:
    """Remove leftovers of killed processes and, after the deadline, the trials' checkpoints."""
    try:
        system.try_to_write()
        remove_temporaries(context.paths.root)
        # After any other end the run may be resumed, and trainings continue from their checkpoints.
        if reason in FINISHED:
            for checkpoint in once_more(context.paths.checkpoints):
                once_more(lambda file=checkpoint: file.unlink(missing_ok=True))  # type: ignore[misc]
    except OSError as error:  # descriptions and disk space, not correctness
        log.warning("the run directory could not be tidied up completely: %s", error)


async def _stopped(servers: Sequence[ReplicaServer], replicas: Sequence[asyncio.Task[None]]) -> None:
    await asyncio.gather(*(server.stop() for server in servers))
    await asyncio.wait(replicas)


def named(some: Sequence[int], replicas: int, what: str) -> str:
    """Replicas by number: "1 of 2 replicas lost: replica 0"; empty if there are none."""
    if not some:
        return ""
    numbers = ", ".join(map(str, some))
    return f"{len(some)} of {replicas} replicas {what}: replica{'s' if len(some) > 1 else ''} {numbers}"
