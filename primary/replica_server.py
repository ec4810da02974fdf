"""The primary's side of one replica: start, handshake, jobs, restarts, loss."""

from __future__ import annotations

import logging

from aiperf.errors import LaunchError
from aiperf.history.bodies import JobIssued, ReplicaLost, ReplicaReady
from aiperf.messages import (
    CANCELLED,
    UNFIT,
    Cancel,
    Finished,
    Job,
    Progress,
    Ready,
    Started,
    Stop,
)
from aiperf.processes import python_module
from primary.context import Milestones, RunContext, SystemFile, storage_notes, until_writable
from primary.display.state import ReplicaView
from primary.environment import on_node
from primary.launchers import ReplicaSpec
from primary.replica_link import ClockOffset, ReplicaGoneError, ReplicaLink
from primary.witness import Witness

log = logging.getLogger(__name__)

KILL_GRACE_S = 5.0
MAX_PAUSE_S = 60.0
MAX_REASON_LENGTH = 4000


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
    return on_node(settings, agent)


def title_of(job: Job) -> str:
    """A job in a few words, for people."""
    point = f", point {job.point}" if job.point else ""
    resumed = f", resumes trial {job.resumes}" if job.resumes is not None else ""
    return f"trial {job.trial} (round {job.round}{point}{resumed})"


def log_epoch(view: ReplicaView, event: Progress) -> None:
    """Log an epoch at its first report; every logged epoch must be in the history list."""
    known = view.progress
    last = known.epoch if known is not None and known.trial == event.trial else 0
    if event.epoch > last:
        log.info("replica %d: trial %d completed epoch %d", view.replica, event.trial, event.epoch)


class ReplicaServer:
    """Serves one replica until the run ends. Its failures do not reach the other replicas."""

    def __init__(self, context: RunContext, milestones: Milestones, system: SystemFile, view: ReplicaView) -> None:
        self._context = context
        self._settings = context.config.replica
        self._milestones = milestones
        self._system = system
        self._view = view
        self._replica = view.replica
        self._witness = Witness(context.writer, milestones.stopping)
        self._link: ReplicaLink | None = None
        self._job: Job | None = None

    async def serve(self) -> None:
        """Serve the replica, and restart it if it dies, until the run ends."""
        for attempt in range(self._settings.restarts + 1):
            try:
                await self._serve_once()
                return
            except ReplicaGoneError as error:
                self._lose(str(error))
                await self.kill(KILL_GRACE_S)
                await self.conclude()
                if self._milestones.stopping.is_set() or not error.restart or attempt == self._settings.restarts:
                    return
                if error.storage:
                    await until_writable(self._context, self._milestones)
            except LaunchError as error:
                self._lose(str(error))
                return
            await self._pause(attempt)
            if self._milestones.stopping.is_set():
                return
            self._view.state = "starting"
            self._context.announce(f"replica {self._replica} is started again")

    async def cancel(self, trial: int, reason: str) -> bool:
        """Ask for the end of a trial; False if this replica does not work on it."""
        if self._job is None or self._job.trial != trial or self._link is None:
            return False
        await self._link.send(Cancel(trial=trial, reason=reason))
        return True

    async def stop(self) -> None:
        """Ask the replica to end."""
        if self._link is not None:
            await self._link.send(Stop(reason="the run has ended"))

    async def kill(self, grace_s: float) -> None:
        """End the replica by force if it does not end within `grace_s`."""
        if self._link is not None:
            await self._link.cancel(grace_s)

    async def conclude(self) -> None:
        """Record what the replica has reported before its end, and that its trial is over."""
        await self._witness.conclude(self._link)

    async def _serve_once(self) -> None:
        link = await self._start()
        self._welcome(*await link.handshake(self._context.clock))
        await self._milestones.released.wait()
        await self._work(link)

    async def _pause(self, failures: int) -> None:
        """Wait before the next attempt, longer after each failure, but not beyond the run."""
        pause_s = min(MAX_PAUSE_S, self._settings.retry_delay * 2**failures)
        await self._milestones.or_end(self._context.clock.sleep(pause_s))

    async def _start(self) -> ReplicaLink:
        spec = ReplicaSpec(
            replica=self._replica,
            command=agent_command(self._context, self._replica),
            log=self._context.paths.replica_log(self._replica),
        )
        process = await self._context.launcher.start(spec)
        self._link = ReplicaLink(process, spec, self._context.config.run.replica_silence)
        self._link.on_storage = storage_notes(self._context, self._view)
        if self._milestones.stopping.is_set():
            await self.stop()
        return self._link

    def _welcome(self, ready: Ready, offset: ClockOffset) -> None:
        self._context.writer.append(
            ReplicaReady(
                replica=self._replica,
                writer=ready.writer,
                accelerators=ready.accelerators,
                clock_offset_ms=offset.applied_ms,
            )
        )
        self._witness.welcome(ready.writer)
        self._system.add(self._replica, ready.node)
        self._view.state = "ready"
        self._milestones.answer(self._replica)

    async def _work(self, link: ReplicaLink) -> None:
        failures = 0
        self._view.state = "working"
        while not self._milestones.stopping.is_set():
            if failures >= self._settings.max_failed_trials:
                raise ReplicaGoneError(f"put aside after {failures} failed trials in a row", restart=False)
            if failures:
                await self._pause(failures - 1)
            await self._milestones.or_end(self._context.manager.turn(self._replica))
            if not self._milestones.stopping.is_set():
                finished = await self._training(link)
                if finished.kind == UNFIT:
                    raise ReplicaGoneError(finished.reason.removeprefix(f"{UNFIT}: "), restart=False)
                failures = 0 if finished.completed else failures + (finished.kind != CANCELLED)
        await self._witness.hear_out(link)
        self._view.state = "finished"

    async def _training(self, link: ReplicaLink) -> Finished:
        self._job = job = self._context.work.next_job(self._replica)
        self._view.round = job.round
        self._context.writer.append(JobIssued(replica=self._replica, **job.model_dump(exclude={"type"})))
        self._witness.issued(job.trial)
        self._context.manager.issued(self._replica, job)
        await self._context.writer.settled()
        await link.send(job)
        while True:
            self._witness.take(event := await link.next_event())
            if isinstance(event, Finished):
                break
            if isinstance(event, Started):
                self._context.manager.started(event)
            elif isinstance(event, Progress):
                log_epoch(self._view, event)
                self._view.take(event)
        self._job = None
        self._context.manager.over(job.trial)
        self._context.work.finished(self._replica, job, event)
        self._announce_end(job, event)
        return event

    def _announce_end(self, job: Job, event: Finished) -> None:
        name = f"replica {self._replica}: {title_of(job)}"
        if event.completed:
            self._view.trials += 1
            self._context.announce(f"{name} done")
        elif not self._milestones.stopping.is_set():
            self._context.announce(f"{name} FAILED: {event.reason}")

    def _lose(self, reason: str) -> None:
        if self._milestones.stopping.is_set():
            self._view.state = "finished"
        else:
            self._view.state = "lost"
            self._context.writer.append(ReplicaLost(replica=self._replica, reason=reason[:MAX_REASON_LENGTH]))
            self._context.announce(f"replica {self._replica} LOST: {reason}")
            if self._job is not None:
                job, self._job = self._job, None
                self._context.work.lost(self._replica, job)
                self._context.manager.over(job.trial)
        self._milestones.answer(self._replica)
