"""A run from its start barrier to its orderly end.

Each replica is served by a `ReplicaServer` meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from math import inf

from aiperf.files import remove_temporaries
from aiperf.history.bodies import RunEnded, RunReleased
from aiperf.run_directory.claim import TOUCH_INTERVAL_S
from primary.context import Milestones, RunContext, SystemFile
from primary.display.state import ReplicaView, RunView
from primary.heads import HeadLines
from primary.managers.contract import EndReason
from primary.nodes.placement import PlacementCheck
from primary.replica_server import KILL_GRACE_S, ReplicaServer

log = logging.getLogger(__name__)

REFRESH_S = 1.0


class Dispatcher:
    """Runs one run. `interrupt` may be called at any time, from a signal handler."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._config = context.config
        self._milestones = Milestones()
        self._system = SystemFile(context.paths.system)
        self._view = RunView(self._config.run.duration, [ReplicaView(r) for r in range(self._config.run.replicas)])
        self._servers = [ReplicaServer(context, self._milestones, self._system, view) for view in self._view.replicas]
        self._heads = HeadLines(context)
        self._placement = PlacementCheck(context.config, context.launcher.per_node)
        self._hurry = asyncio.Event()
        self._release_ms = 0

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
        replicas = [asyncio.create_task(server.serve()) for server in self._servers]
        ticker = asyncio.create_task(self._tick())
        reason: EndReason = "interrupted"
        try:
            if self._context.released_ms is not None or await self._barrier():
                self._release()
                reason = await self._until_end(replicas)
            elif not self._milestones.stopping.is_set():
                reason = "no_replicas"
            self._record_end(reason)
        finally:
            self._milestones.stopping.set()
            try:
                await self._stop_all(replicas)
            finally:
                ticker.cancel()
                self._close(reason)
        return reason

    def _close(self, reason: EndReason) -> None:
        self._heads.last()
        self._tidy(reason)
        self._context.manager.closed(reason)
        self._context.display.refresh(self._view)
        self._context.display.close()

    def _tidy(self, reason: EndReason) -> None:
        """Remove leftovers of killed processes and, after the deadline, the trials' checkpoints."""
        try:
            self._system.try_to_write()
            remove_temporaries(self._context.paths.root)
            if reason == "deadline":
                for checkpoint in self._context.paths.checkpoints():
                    checkpoint.unlink(missing_ok=True)
        except OSError as error:  # descriptions and disk space, not correctness
            log.warning("the run directory could not be tidied up completely: %s", error)

    async def _barrier(self) -> bool:
        """Wait for every replica to be ready or lost, up to a limit; True if any is ready."""
        milestones, limit_s = self._milestones, self._config.run.start_timeout
        try:
            async with asyncio.timeout(limit_s):
                while len(milestones.answered) < len(self._servers) and not milestones.stopping.is_set():
                    await milestones.or_end(milestones.changed.wait())
                    milestones.changed.clear()
        except TimeoutError:
            late = len(self._servers) - len(milestones.answered)
            self._context.announce(f"{late} replica(s) not ready within {limit_s:.0f} s; starting without them")
        return bool(self._ready_replicas()) and not milestones.stopping.is_set()

    def _ready_replicas(self) -> tuple[int, ...]:
        return tuple(view.replica for view in self._view.replicas if view.state == "ready")

    def _release(self) -> None:
        duration_s, ready = self._config.run.duration, self._ready_replicas()
        self._check_placement()
        if self._context.released_ms is None:
            body = RunReleased(duration_ms=round(duration_s * 1000), ready=ready)
            self._release_ms = self._context.writer.append(body).time_ms
            self._context.announce(f"{len(ready)} of {len(self._servers)} replicas released for {duration_s:.0f} s")
        else:
            self._release_ms = self._context.released_ms
            self._context.announce(f"run resumed; {self._elapsed_s():.0f} of {duration_s:.0f} s have passed")
        self._view.elapsed_s = self._elapsed_s()
        self._heads.look(self._elapsed_s())
        self._context.manager.released(self._left_s())
        self._milestones.released.set()

    def _elapsed_s(self) -> float:
        return (self._context.clock.utc_ms() - self._release_ms) / 1000

    def _left_s(self) -> float:
        return self._config.run.duration - self._elapsed_s()

    async def _until_end(self, replicas: list[asyncio.Task[None]]) -> EndReason:
        everyone = asyncio.ensure_future(_all_lost(replicas))
        stop = asyncio.ensure_future(self._milestones.stopping.wait())
        try:
            done, _ = await asyncio.wait((everyone, stop), timeout=self._left_s(), return_when=asyncio.FIRST_COMPLETED)
            if everyone in done:
                everyone.result()
                return "no_replicas"
            return "interrupted" if done else "deadline"
        finally:
            everyone.cancel()
            stop.cancel()

    def _record_end(self, reason: EndReason) -> None:
        now_ms = self._context.clock.utc_ms()
        end_ms = self._release_ms + round(self._config.run.duration * 1000) if reason == "deadline" else now_ms
        lost = [view.replica for view in self._view.replicas if view.state == "lost"]
        detail = lost_replicas(lost, len(self._servers))
        if self._context.reserve is not None:
            self._context.reserve.release()
        self._context.writer.append(RunEnded(reason=reason, end_ms=end_ms, detail=detail))
        self._context.announce(f"run ended: {reason}{f' ({detail})' if detail else ''}")

    async def _stop_all(self, replicas: list[asyncio.Task[None]]) -> None:
        """Stop all replicas, within `stop_grace` or until a second interruption; kill the rest."""
        await asyncio.gather(*(server.stop() for server in self._servers))
        orderly = asyncio.ensure_future(asyncio.wait(replicas))
        hurry = asyncio.ensure_future(self._hurry.wait())
        grace_s = self._config.run.stop_grace
        await asyncio.wait((orderly, hurry), timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        for task in (orderly, hurry, *replicas):
            task.cancel()
        # Also after an orderly end: children of a replica may be left, which its launcher ends.
        await asyncio.gather(*(server.kill(KILL_GRACE_S) for server in self._servers))
        await asyncio.gather(*replicas, return_exceptions=True)
        await asyncio.gather(*(server.conclude() for server in self._servers))

    async def _tick(self) -> None:
        """Once a second: keep the claim alive, describe late replicas, redraw the live view."""
        clock, touched_s = self._context.clock, -inf
        while True:
            if clock.monotonic_s() - touched_s > TOUCH_INTERVAL_S:
                touched_s = clock.monotonic_s()
                self._context.claim.touch()
            if self._release_ms:
                self._view.elapsed_s = self._elapsed_s()
                self._heads.look(self._elapsed_s())
                self._check_placement()
                await self._system.keep()
            self._context.writer.look()
            self._context.display.refresh(self._view)
            await clock.sleep(REFRESH_S)

    def _check_placement(self) -> None:
        present = (view.replica for view in self._view.replicas if view.state in ("ready", "working"))
        for text in self._system.check(self._placement, present):
            self._context.announce(f"WARNING: {text}")


def lost_replicas(lost: Sequence[int], replicas: int) -> str:
    """The lost replicas by number: "1 of 2 replicas lost: replica 0"; empty if there are none."""
    if not lost:
        return ""
    return f"{len(lost)} of {replicas} replicas lost: replica{'s' if len(lost) > 1 else ''} {', '.join(map(str, lost))}"


async def _all_lost(replicas: list[asyncio.Task[None]]) -> bool:
    for replica in asyncio.as_completed(replicas):
        await replica  # an error of the primary itself, such as a full disk, ends the run here
    return True
