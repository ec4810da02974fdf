"""The primary's side of one replica: start, handshake, jobs, restarts, loss."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from aiperf.errors import LaunchError, StorageError
from aiperf.processes import python_module
from aiperf.records.bodies import NodeMeasured, ReplicaLost, ReplicaReady, issued
from aiperf.run_directory.micro_results import file_name
from aiperf.wire import messages
from primary.context import Milestones, RunContext, SystemFile, storage_notes, until_writable
from primary.display.state import LiveReplica
from primary.environment import on_node
from primary.launchers import ReplicaSpec
from primary.launchers.contract import LeavesJobs
from primary.replica_link import ClockOffset, ReplicaGoneError, ReplicaLink
from primary.witness import Witness

log = logging.getLogger(__name__)

ASKED_S = 15.0
"""Longest wait of a release for the reason why a replica has not come."""

KILL_GRACE_S = 5.0
IDLE_LOOK_S = 1.0
"""Seconds between two looks of a replica without a job at the work list."""

MAX_PAUSE_S = 60.0
MAX_REASON_LENGTH = 4000

SHOWN_EVERY = 60
"""One of this many starts in a row that fail, about one an hour, is recorded and shown."""

FORGIVEN_AFTER_S = 3600.0
"""A replica that has worked for this long may be restarted as often as a new one."""


def agent_command(context: RunContext, replica: int, released: bool = False) -> tuple[str, ...]:
    """The command line of an agent, in the environment that the configuration describes.

    Before the release it measures its node if the configuration asks for that.
    """
    settings = context.config.environment
    measures = context.config.micro.suite != "none" and not released and context.released_ms is None
    agent = python_module(
        "replica",
        "--run",
        str(context.paths.root.absolute()),
        "--replica",
        str(replica),
        "--share",
        str(context.launcher.per_node),
        *(("--measure",) if measures else ()),
        python=settings.python,
    )
    return on_node(settings, agent)


def start_limit_s(context: RunContext) -> float | None:
    """Longest silence of a started replica that is not ready; None: it may wait in a queue.

    A node that dies meanwhile may keep its connection for good. A scheduler watches its own jobs.
    """
    config = context.config
    return None if isinstance(context.launcher, LeavesJobs) else config.start_limit + config.storage.patience


def title_of(job: messages.Job) -> str:
    """A job in a few words, for people."""
    point = f", point {job.point}" if job.point else ""
    work = f"round {job.round}{point}" if job.workload is None else f"{job.workload}, model {job.instance}"
    resumed = f", resumes trial {job.resumes}" if job.resumes is not None else ""
    return f"trial {job.trial} ({work}{resumed})"


def pause_s(retry_delay_s: float, failures: int) -> float:
    """Seconds before the next attempt: twice as long after each failure, up to `MAX_PAUSE_S`."""
    # Any delay has reached the limit by then, and the power of many failures is no float.
    return min(MAX_PAUSE_S, retry_delay_s * 2.0 ** min(failures, 64))


async def _pause(context: RunContext, milestones: Milestones, failures: int) -> None:
    """Wait before the next attempt, longer after each failure, but not beyond the run."""
    await milestones.or_end(context.clock.sleep(pause_s(context.config.replica.retry_delay, failures)))


def log_epoch(view: LiveReplica, event: messages.Progress) -> None:
    """Log an epoch at its first report; every logged epoch must be in the history list."""
    known = view.progress
    last = known.epoch if known is not None and known.trial == event.trial else 0
    if event.epoch > last:
        log.info("replica %d: trial %d completed epoch %d", view.replica, event.trial, event.epoch)


async def _attempt(replica: int, what: str, action: Coroutine[Any, Any, object]) -> None:
    """Do something to a replica. If that fails, its silence or its end will show."""
    try:
        await action
    except Exception as error:
        log.warning("replica %d cannot %s: %s: %s", replica, what, type(error).__name__, error)


def _loss_by(error: Exception, replica: int, context: RunContext) -> ReplicaGoneError:
    if isinstance(error, ReplicaGoneError):
        return error
    if isinstance(error, LaunchError):
        return ReplicaGoneError(str(error), restart=error.restart, began=False)
    # Not foreseen, but the other replicas can continue: a limit of the system, a library
    # of the launcher.
    log.error("replica %d", replica, exc_info=error)
    cause = f"{type(error).__name__}: {error}"
    return ReplicaGoneError(f"the primary failed to serve it: {cause}; see {context.paths.primary_log}")


class _Jobs:
    """The jobs of one replica, one at a time."""

    def __init__(self, context: RunContext, milestones: Milestones, view: LiveReplica, witness: Witness) -> None:
        self._context = context
        self._settings = context.config.replica
        self._milestones = milestones
        self._view = view
        self._replica = view.replica
        self._witness = witness
        self._job: messages.Job | None = None
        self._began = False
        """True if the replica has said what it trains."""
        witness.on_started = self._begin

    def _begin(self, event: messages.Started) -> None:
        if self._job is not None:
            self._began = True
            self._context.digest.began(self._replica, self._job, event)
            self._context.manager.started(event)

    @property
    def trial(self) -> int | None:
        """The trial in progress."""
        return None if self._job is None else self._job.trial

    def lose(self) -> None:
        """Give up the job in progress: its replica was lost, ended and heard out.

        Until then no other replica may have the job: what is lost may still train.
        """
        if self._job is not None:
            job, self._job, ended = self._job, None, self._witness.ended
            try:
                if ended is not None and ended.completed:  # its last words
                    self._context.work.finished(self._replica, job, ended, self._began)
                else:
                    self._context.work.lost(self._replica, job, self._began)
                self._context.manager.over(job.trial)
            except Exception:
                log.exception("the loss of trial %d", job.trial)

    async def serve(self, link: ReplicaLink) -> None:
        """Issue jobs until the run ends. Raises ReplicaGoneError."""
        failures = 0
        self._view.state = "working"
        while not self._milestones.stopping.is_set():
            if failures >= self._settings.max_failed_trials:
                raise ReplicaGoneError(f"put aside after {failures} failed trials in a row", restart=False)
            if failures:
                await _pause(self._context, self._milestones, failures - 1)
            await self._milestones.or_end(self._context.manager.turn(self._replica))
            if (job := await self._next_job()) is not None:
                finished = await self._training(link, job)
                if finished.kind == messages.UNFIT:
                    raise ReplicaGoneError(finished.reason.removeprefix(f"{messages.UNFIT}: "), restart=False)
                # A cancelled trial was ended by a manager, and says nothing against the node.
                failures = 0 if finished.completed else failures + (finished.kind != messages.CANCELLED)
        await self._witness.hear_out(link)
        self._view.state = "finished"

    async def _next_job(self) -> messages.Job | None:
        """The next job, perhaps one that another replica hands back; None at the end of the run."""
        work = self._context.work
        while not self._milestones.stopping.is_set():
            if (job := work.next_job(self._replica)) is not None:
                return job
            if work.complete:
                self._milestones.complete.set()
            await self._milestones.or_end(self._context.clock.sleep(IDLE_LOOK_S))
        return None

    async def _training(self, link: ReplicaLink, job: messages.Job) -> messages.Finished:
        self._job = job = replace(job, claim=self._context.claim.number)
        self._began = False
        self._view.round = job.round
        self._context.writer.append(issued(job, self._replica))
        self._witness.issued(job.trial)
        self._context.manager.issued(self._replica, job)
        # Durable before it is sent: a primary that dies in between would otherwise issue the same
        # number again, for another trial with the same files.
        await self._context.writer.settled()
        # The replica's next plan is made from an entry for its last trial.
        await self._context.digest.settled()
        await link.send(replace(job, digest=self._context.digest.name))
        while True:
            self._witness.take(event := await link.next_event())
            if type(event) is messages.Progress:
                log_epoch(self._view, event)
                self._view.take(event)
            elif type(event) is messages.Finished:
                break
        self._job = None
        self._context.manager.over(job.trial)
        self._context.work.finished(self._replica, job, event, self._began)
        self._announce_end(job, event)
        return event

    def _announce_end(self, job: messages.Job, event: messages.Finished) -> None:
        name = f"replica {self._replica}: {title_of(job)}"
        if event.completed:
            self._view.trials += 1
            self._context.announce(f"{name} done")
        elif not self._milestones.stopping.is_set():
            self._context.announce(f"{name} FAILED: {event.reason}")


class ReplicaServer:
    """Serves one replica until the run ends.

    Whatever fails, here or in its launcher, costs this replica and not the run. Methods raise
    StorageError if the primary cannot record, and nothing else.
    """

    def __init__(self, context: RunContext, milestones: Milestones, system: SystemFile, view: LiveReplica) -> None:
        self._context = context
        self._settings = context.config.replica
        self._milestones = milestones
        self._system = system
        self._view = view
        self._replica = view.replica
        self._witness = Witness(context.writer, milestones.stopping, context.digest)
        self._link: ReplicaLink | None = None
        self._jobs = _Jobs(context, milestones, view, self._witness)
        self._working_since_s: float | None = None
        self._node = ""
        self._failed_starts = 0
        """Starts in a row that have failed, as those on a node do that boots."""

    async def serve(self) -> None:
        """Serve the replica, and restart it if it dies, until the run ends.

        A start that fails is no restart: the node may come back at any time.
        """
        restarts = 0
        while (loss := await self._serve_until_lost()) is not None:
            if self._worked_s() >= FORGIVEN_AFTER_S:
                restarts = 0
            used_up = restarts == self._settings.restarts and (loss.began or restarts == 0)
            if self._milestones.stopping.is_set() or not loss.restart or used_up:
                return
            if loss.storage:
                await until_writable(self._context, self._milestones)
            if self._failed_starts == 1:
                self._context.announce(f"replica {self._replica} is tried again until it can be started")
            await _pause(self._context, self._milestones, restarts + max(0, self._failed_starts - 1))
            if self._milestones.stopping.is_set():
                return
            self._view.state = "starting"
            if loss.began:
                restarts += 1
                self._context.announce(f"replica {self._replica} is started again")

    async def _serve_until_lost(self) -> ReplicaGoneError | None:
        """Serve the replica until it is lost; None if it was there to the end of the run."""
        self._link, self._working_since_s = None, None
        try:
            await self._serve_once()
        except StorageError:
            raise
        except Exception as error:
            loss = _loss_by(error, self._replica, self._context)
        else:
            return None
        self._failed_starts = 0 if loss.began else self._failed_starts + 1
        # In this order: the loss is recorded, then the replica is ended so that it reports nothing
        # more, then its last reports are taken. Only after that may another replica have its job.
        self._lose(str(loss))
        await self.kill(KILL_GRACE_S)
        await self.conclude()
        if not self._milestones.stopping.is_set():
            self._jobs.lose()
        return loss

    @property
    def is_awaited(self) -> bool:
        """True if the replica has neither come nor been lost."""
        return self._view.state == "starting"

    async def awaited(self, turn: asyncio.Semaphore) -> str:
        """Describe what the start of this replica waits for, as far as known at once."""
        if self._link is None:
            return f"its connection ({self._context.config.run.launcher})"
        known = ""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ASKED_S), turn:
                known = await self._link.explain()
        return f"its first message{f'; {known}' if known else ''}"

    async def note_absence(self, limit_s: float, turn: asyncio.Semaphore) -> None:
        """Record that the replica was not ready in time, and why. It may still come."""
        reason = f"not ready within {limit_s:.0f} s"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ASKED_S), turn:
                reason = await self._link.describe_absence(reason) if self._link is not None else reason
        if self._view.state == "starting" and not self._milestones.stopping.is_set():
            self._record_loss(reason)
            self._context.announce(f"replica {self._replica} is {reason}; the run starts without it")

    def _worked_s(self) -> float:
        since_s = self._working_since_s
        return 0.0 if since_s is None else self._context.clock.monotonic_s() - since_s

    async def cancel(self, trial: int, reason: str) -> bool:
        """Ask for the end of a trial; False if this replica does not work on it."""
        if self._jobs.trial != trial or self._link is None:
            return False
        await _attempt(self._replica, "be reached", self._link.send(messages.Cancel(trial=trial, reason=reason)))
        return True

    async def stop(self) -> None:
        """Ask the replica to end."""
        if self._link is not None:
            await _attempt(self._replica, "be asked to end", self._link.send(messages.Stop(reason="the run has ended")))

    async def kill(self, grace_s: float) -> None:
        """End the replica by force if it does not end within `grace_s`."""
        if self._link is not None:
            await _attempt(self._replica, "be ended", self._link.cancel(grace_s))

    async def conclude(self) -> None:
        """Record what the replica has reported before its end, and that its trial is over."""
        await self._witness.conclude(self._link)

    async def _serve_once(self) -> None:
        link = await self._start()
        self._welcome(*await link.handshake(self._context.clock))
        await self._milestones.released.wait()
        self._working_since_s = self._context.clock.monotonic_s()
        await self._jobs.serve(link)

    async def _start(self) -> ReplicaLink:
        spec = ReplicaSpec(
            replica=self._replica,
            command=agent_command(self._context, self._replica, self._milestones.released.is_set()),
            log=self._context.paths.replica_log(self._replica),
            identity=self._context.identity,
        )
        process = await self._context.launcher.start(spec)
        if self._failed_starts:
            self._context.announce(
                f"replica {self._replica} could be started, after {self._failed_starts} failed starts"
            )
        self._link = ReplicaLink(process, spec, self._context.config.run.replica_silence, start_limit_s(self._context))
        self._link.on_storage = storage_notes(self._context, self._view)
        if self._milestones.stopping.is_set():
            # The end of the run came while the launcher worked, and found no link to ask by.
            await self.stop()
        return self._link

    def _welcome(self, ready: messages.Ready, offset: ClockOffset) -> None:
        self._context.writer.append(
            ReplicaReady(
                replica=self._replica,
                writer=ready.writer,
                accelerators=ready.accelerators,
                clock_offset_ms=offset.applied_ms,
            )
        )
        if ready.unmeasured is not None:
            self._context.announce(f"WARNING: replica {self._replica}: the micro suite failed: {ready.unmeasured}")
        if ready.measured is not None:
            name = file_name(str(ready.node.get("host")))
            self._context.writer.append(NodeMeasured(replica=self._replica, name=name, digest=ready.measured))
        self._witness.welcome(ready.writer)
        self._system.add(self._replica, ready.node)
        self._node = str(ready.node.get("host") or "")
        self._view.state = "ready"
        self._milestones.answer(self._replica)

    def _lose(self, reason: str) -> None:
        if self._milestones.stopping.is_set():
            self._view.state = "finished"
        else:
            self._view.state = "lost"
            if self._failed_starts > 1 and self._failed_starts % SHOWN_EVERY:
                log.info("replica %d: %s", self._replica, reason)
                return  # it was lost before
            node = f" (node {self._node})" if self._node else ""
            # A job's output has no other time of day, by which to look into the logs of a node.
            at = datetime.fromtimestamp(self._context.clock.utc_ms() / 1000)
            self._context.announce(f"{at:%H:%M:%S} replica {self._replica} LOST: {self._record_loss(reason)}{node}")
        self._milestones.answer(self._replica)

    def _record_loss(self, reason: str) -> str:
        reason = reason.encode(errors="backslashreplace").decode()  # names of files may be anything
        self._context.writer.append(ReplicaLost(replica=self._replica, reason=reason[:MAX_REASON_LENGTH]))
        return reason
