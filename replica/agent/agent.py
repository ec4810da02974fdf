"""The agent of a replica: it takes jobs from the primary and runs them, one at a time.

It sends heartbeats in between, and chooses the kind of trial that a job asks for. It never imports
a framework: trainers are processes of their own, so that the death of one costs a trial and not
the replica.
"""

import argparse
import asyncio
import contextlib
import errno
import logging
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from aiperf import __version__
from aiperf.clock import Clock, SystemClock
from aiperf.config.datasets import data_problems
from aiperf.config.sections.cluster import StorageSection
from aiperf.config.settings import RunConfig
from aiperf.errors import EXIT_DONE, EXIT_ENVIRONMENT, AiperfError, DatasetError, StorageError, TrialFailedError
from aiperf.frameworks import missing_packages
from aiperf.host import this_host
from aiperf.machine.accelerators import visible_devices
from aiperf.machine.description import folders_of
from aiperf.machine.job import give_job_back
from aiperf.machine.node import describe_node
from aiperf.machine.telemetry import telemetry
from aiperf.processes import MessageOutput, open_input
from aiperf.records.bodies import PhaseBegan, TrialFailed
from aiperf.records.history_files import HistoryWriter
from aiperf.run_directory.manifest import read_manifest
from aiperf.run_directory.paths import RunPaths, open_run
from aiperf.signals import heed
from aiperf.storage.appended import check_root
from aiperf.storage.patience import PATIENCE, Patience, may_pass
from aiperf.wire import messages
from aiperf.wire.lines import decode_to_agent
from replica.agent.share import own_accelerators, share_of_node
from replica.agent.storage import StorageReports, close_writer, open_writer
from replica.agent.trial.automl import Trial
from replica.agent.trial.context import ReplicaContext
from replica.agent.trial.devices import invisible_to_framework_reason
from replica.agent.trial.science import WorkloadTrial
from replica.agent.trial.standby import Standby
from replica.agent.trial.trainer_process import TrainerProcess
from replica.measure.micro.node_job import MicroReport, NodeJob
from replica.search.planner import Planner
from replica.trainer.settings import TelemetrySettings
from replica.trainer.temporary import kept_programs
from workloads.data import find_set
from workloads.science import SCIENCE

# Heartbeats: the primary takes a replica for lost after `run.replica_silence` without a message.

PER_SILENCE = 4
"""Least number of messages in `run.replica_silence`: one that is late or lost costs nothing."""

LEAST_S = 0.001
"""Least time to sleep: a clock may round a shorter one to zero, and the loop would spin."""


class Heartbeats:
    """The sender of a replica's messages, with heartbeats while there is nothing to report."""

    def __init__(self, send: Callable[[messages.Message], None], clock: Clock, silence_s: float) -> None:
        self._send = send
        self._clock = clock
        self._longest_s = silence_s / PER_SILENCE
        self._sent_s = clock.monotonic_s()

    def send(self, message: messages.Message) -> None:
        """Send a message; the next heartbeat is due a whole interval after it."""
        self._sent_s = self._clock.monotonic_s()
        self._send(message)

    async def beat(self, quiet: Callable[[], None]) -> None:
        """Send heartbeats for ever, and call `quiet` with each of them."""
        while True:
            left_s = self._sent_s + self._longest_s - self._clock.monotonic_s()
            if left_s > LEAST_S:
                await self._clock.sleep(left_s)
            else:
                self.send(messages.Alive())
                quiet()


# The kinds of trials, and the data that they need.

AnyTrial = Trial | WorkloadTrial


def why_without_data(config: RunConfig) -> str | None:
    """Give the reason why this node lacks the scientific suite's data sets; None if it does not.

    None for a run of another suite, too.
    """
    if config.run.suite != "science" or config.science.data_dir is None:
        return None
    for name in config.science.workloads:
        need = SCIENCE.load(name).size(config.science.size).data
        try:
            find_set(need.source, Path(config.science.data_dir) / need.folder)
        except DatasetError as error:
            return str(error)
    return None


def trial_of(context: ReplicaContext, job: messages.Job, standby: Standby) -> AnyTrial:
    """The trial of a job: of AutoML, or of a scientific workload."""
    return Trial(context, job, standby) if job.workload is None else WorkloadTrial(context, job)


log = logging.getLogger(__name__)

OF_PROCESSES = frozenset(
    {
        errno.ENOMEM,
        errno.EMFILE,
        errno.ENFILE,
        errno.EPIPE,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EADDRINUSE,
        errno.EADDRNOTAVAIL,
    }
)
"""Errors of limits, pipes and sockets, which may pass: they cost a trial and not its replica."""


class Agent:
    """The service of one replica, until the primary stops it or is gone."""

    def __init__(self, context: ReplicaContext) -> None:
        self._heartbeats = Heartbeats(context.send, context.clock, context.config.run.replica_silence)
        self._context = context = replace(context, send=self._heartbeats.send)
        self._standby = Standby(context)
        self._work: asyncio.Task[None] | None = None
        self._trial: AnyTrial | None = None
        self._cancelled: messages.Cancel | None = None
        self._broken = asyncio.Event()
        """Event that ends the replica: what cannot be recorded must not be trained either."""
        self._why_broken: Exception | None = None
        self._waits_for = ""
        self.orphaned = False  # True if the pipe ended without a stop: the primary is gone

    def fail_replica(self, error: Exception) -> None:
        """End the replica: storage refuses for good, or the agent fails."""
        self._why_broken = error
        self._broken.set()

    def note_storage(self, reason: str) -> None:
        """Record that the work waits for storage, or, without a reason, does not."""
        self._waits_for = reason
        if self._trial is not None:
            self._trial.log.wait_for_storage(bool(reason))
            return
        phase: messages.Phase = "storage" if reason else "idle"
        with contextlib.suppress(StorageError):
            self._context.writer.append(PhaseBegan(replica=self._context.replica, trial=None, phase=phase))

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Answer messages until Stop or the end of the pipe, then end the trial in progress."""
        heartbeats = asyncio.create_task(self._heartbeats.beat(self._context.writer.look))
        answers = asyncio.create_task(self._answer(reader))
        opening = asyncio.create_task(_open(self._context))
        try:
            broken = asyncio.create_task(self._broken.wait())
            done, _ = await asyncio.wait({answers, broken, heartbeats}, return_when=asyncio.FIRST_COMPLETED)
            broken.cancel()
            # What has broken the replica comes first, even if the pipe has ended in the same turn
            # of the loop.
            if self._broken.is_set():
                storage = isinstance(self._why_broken, StorageError)
                self._context.send(messages.Unable(reason=str(self._why_broken), storage=storage))
            else:
                done.pop().result()  # raises an error of the answers, or of the heartbeats
        finally:
            heartbeats.cancel()
            answers.cancel()
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            # From here on no wait for storage may be long: an agent that is slow to stop is ended
            # by force, before it has ended its ranks.
            PATIENCE.hurry()
            try:
                await self._end_work()
            finally:  # also if the launcher's SIGTERM does not leave the ranks the time to end
                if not self._broken.is_set():
                    self._close()

    async def _end_work(self) -> None:
        if self._work is not None:
            self._stop_trial()
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        await self._standby.drop()

    def _stop_trial(self) -> None:
        """Record at once that the run ends the trial: the agent may be killed before its ranks are.

        Without the record its unfinished epoch would not count.
        """
        if self._trial is not None and self._cancel_of(self._trial.number) is None:
            with contextlib.suppress(StorageError):
                self._trial.log.stop()

    def _close(self) -> None:
        """Report the last record: no other follows it."""
        sequence, digest = self._context.writer.head or (None, None)
        self._context.report(
            messages.Closing(
                trial=None if self._trial is None else self._trial.number, sequence=sequence, digest=digest
            )
        )

    async def _answer(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            message = decode_to_agent(line)
            if isinstance(message, messages.ClockRequest):
                # At once, ahead of everything else: half the round trip is the error of the offset
                # that it measures.
                self._context.send(messages.ClockReply(utc_ms=self._context.clock.utc_ms()))
            elif isinstance(message, messages.Job):
                # By name, because a cancellation may come before the task has made its trial.
                self._work = asyncio.create_task(self._do(message), name=str(message.trial))
            elif isinstance(message, messages.Cancel):
                await self._cancel(message)
            else:
                log.info("stop: %s", message.reason)
                return
        self.orphaned = True

    async def _cancel(self, message: messages.Cancel) -> None:
        await self._context.clock.sleep(0)  # a task cancelled before its first step could not report its end
        if self._work is None or self._work.get_name() != str(message.trial) or self._cancel_of(message.trial):
            return
        self._cancelled = message
        self._work.cancel()

    def _cancel_of(self, trial: int) -> messages.Cancel | None:
        return self._cancelled if self._cancelled is not None and self._cancelled.trial == trial else None

    async def _do(self, job: messages.Job) -> None:
        try:
            await self._attempt(job)
        except Exception as error:  # storage that refuses, or an error in reporting the trial's end
            log.error("trial %d: %s", job.trial, error, exc_info=not isinstance(error, StorageError))
            self.fail_replica(error)

    async def _attempt(self, job: messages.Job) -> None:
        self._trial = trial = trial_of(self._context, job, self._standby)
        trial.log.wait_for_storage(bool(self._waits_for))
        try:
            await trial.run()
            self._finish(job, trial)
        except asyncio.CancelledError:
            if (cancel := self._cancel_of(job.trial)) is not None:
                self._end_cancelled(job, trial, cancel.reason)
                return
            raise
        except StorageError:  # handled by `_do`: nothing can be recorded
            raise
        except TrialFailedError as error:
            self._fail(job, trial, error.kind, error.reason)
        except AiperfError as error:
            self._fail(job, trial, "input", str(error))
        except Exception as error:
            # A full disk or a server that is away is not the trial's fault: the replica ends, and
            # the primary starts it again. A failed trial would keep its architecture from being
            # proposed again.
            if isinstance(error, OSError) and may_pass(error) and error.errno not in OF_PROCESSES:
                raise StorageError([f"the run directory refuses: {error}"]) from error
            log.exception("trial %d", job.trial)
            self._fail(job, trial, "error", f"{type(error).__name__}: {error}")

    def _end_cancelled(self, job: messages.Job, trial: AnyTrial, reason: str) -> None:
        # The trial's end was recorded before the cancellation came, and a trial ends once.
        if trial.log.end_record is not None:
            self._finish(job, trial)
        else:
            self._fail(job, trial, messages.CANCELLED, reason)

    def _fail(self, job: messages.Job, trial: AnyTrial, kind: str, reason: str) -> None:
        with contextlib.suppress(OSError):  # not mounted, which may pass: the record waits for it
            check_root(self._context.paths.root, self._context.paths.run)
        log.error("trial %d failed: %s: %s", job.trial, kind, reason)
        body = TrialFailed(trial=job.trial, replica=self._context.replica, kind=kind, reason=reason[:2000])
        self._context.writer.append(body)
        self._finish(job, trial, reason=f"{kind}: {reason}"[:2000], kind=kind)

    def _finish(self, job: messages.Job, trial: AnyTrial, reason: str = "", kind: str = "") -> None:
        # First: a wait for storage that begins now is not the trial's.
        self._trial = None
        trial.log.idle()
        if self._waits_for:
            self.note_storage(self._waits_for)
        sequence, digest = self._context.writer.head or (None, None)
        end = messages.Finished(
            trial=job.trial, completed=not kind, reason=reason, kind=kind, sequence=sequence, digest=digest
        )
        if not kind and (ended := trial.log.end_record) is not None:
            end = msgspec.structs.replace(end, early=ended.reason == "early_stop", predicted=ended.predicted_accuracy)
        self._context.report(end)


async def _open(own: ReplicaContext) -> None:
    """Measure the node if that is asked for, and report that the replica can work.

    Messages are answered meanwhile, and heartbeats sent: a measurement takes minutes.
    """
    measured = await own.measure_node() if own.measure_node is not None else MicroReport()
    own.send(
        messages.Ready(
            writer=own.writer.name,
            version=__version__,
            accelerators=own.ranks,
            node=own.describe_node(),
            measured=measured.digest,
            unmeasured=measured.problem,
        )
    )


def why_unable(config: RunConfig, replica: int) -> str | None:
    """Give the reason why this replica cannot work, or None."""
    if replica in config.simulated.broken_replicas and config.training.trainer == "simulated":
        return "simulated.broken_replicas names this replica"
    if (reason := why_without_data(config)) is not None:
        return reason
    if config.needs_data and (problems := data_problems(config.run.dataset, config.run.data_dir)):
        return "; ".join(problems)
    return "; ".join(missing_packages(config)) or None


async def _serve(arguments: argparse.Namespace, paths: RunPaths, output: MessageOutput) -> int:
    config = read_manifest(paths).config
    reason = why_unable(config, arguments.replica)
    own = own_accelerators(arguments)
    if reason is None and own and config.training.trainer == "keras":
        reason = await invisible_to_framework_reason(config.training.framework, visible_devices(own))
    if reason is not None:
        output.send(messages.Unable(reason=reason))
        return EXIT_ENVIRONMENT
    clock, reader, reports = clock_of(config, arguments.replica), await open_input(), StorageReports(output.send)
    records = Patience(config.storage.patience, reports.of("records"))
    # Records and files wait for storage separately, and are reported separately: a history file may
    # be refused (a quota) while checkpoints can be written, and the other way round.
    keeps = bool(own) and len(arguments.hosts.split(",")) == 1  # the folder is on this node alone
    with PATIENCE.set(config.storage.patience, reports.of("files")), kept_programs(keeps) as programs:
        writer = await open_writer(paths, arguments.replica, clock, records, reader)
        agent = Agent(make_context(arguments, config, paths, writer, reports, programs))
        # Records are written by a thread from here on, whose errors reach the agent by this call.
        writer.in_background(agent.fail_replica)
        reports.attend(agent.note_storage)
        serving = asyncio.create_task(agent.serve(reader))
        heed(partial(_cancel, serving), note=log.info)
        with (
            telemetry(paths, writer.name, clock, config.telemetry.interval, arguments.replica),
            contextlib.suppress(asyncio.CancelledError),
        ):
            await serving
        await close_writer(writer, records, config.run.stop_grace)
    # The primary may have died with its job still allocated: an idle job costs its owner node
    # hours.
    if agent.orphaned:
        give_job_back()
    return EXIT_DONE


def _cancel(serving: asyncio.Task[None]) -> None:
    serving.cancel()


def clock_of(config: RunConfig, replica: int) -> SystemClock:
    """The replica's clock; a rehearsal may set it wrong."""
    shifts = dict(enumerate(config.simulated.clock_shifts_ms if config.training.trainer == "simulated" else ()))
    return SystemClock(shifts.get(replica, 0))


def make_context(
    arguments: argparse.Namespace,
    config: RunConfig,
    paths: RunPaths,
    writer: HistoryWriter,
    reports: StorageReports,
    variables: Mapping[str, str],
) -> ReplicaContext:
    """The context of the replica's trials: its planner, its trainers, its way to the primary.

    Trainers get these variables, but for those that say which devices they have.
    """
    share = share_of_node(arguments, config)
    ranks = replace(share.ranks, environment={**variables, **share.ranks.environment})
    several = len(share.ranks.hosts) > 1
    telemetry = further_nodes_telemetry(config, paths, writer.name, arguments.replica) if several else None
    environment = visible_devices(share.accelerators)
    job = NodeJob(config, paths, arguments.replica, this_host().name(), share.memory.precision, environment)
    return ReplicaContext(
        replica=arguments.replica,
        config=config,
        paths=paths,
        writer=writer,
        search=Planner(arguments.replica, config, paths, share.memory) if config.run.suite == "automl" else None,
        ranks=share.ranks.ranks,
        start_trainer=partial(TrainerProcess.start, replace(ranks, telemetry=telemetry), waits=reports),
        precision=share.memory.precision,
        shares_devices=not any(each.exclusive for each in share.accelerators),
        send=reports.send,
        measure_node=job.measure if arguments.measure and config.micro.suite != "none" else None,
        describe_node=partial(describe_node, folders_of(paths.root, config.run.data_dir)),
    )


def further_nodes_telemetry(config: RunConfig, paths: RunPaths, writer: str, replica: int) -> TelemetrySettings | None:
    """Settings for ranks to sample nodes other than the first; None if telemetry is off."""
    interval_s = config.telemetry.interval
    if interval_s <= 0:
        return None
    return TelemetrySettings(run=str(paths.root.absolute()), writer=writer, replica=replica, interval_s=interval_s)


def add_place(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the replica, its nodes and the replicas that share them."""
    parser.add_argument("--replica", type=int, required=True, help="number of this replica, from 0")
    parser.add_argument("--hosts", default="", help="nodes of this replica, this one first (default: only this one)")
    parser.add_argument("--share", type=int, default=1, help="replicas that share this node's CPUs")


def main(argv: list[str] | None = None) -> int:
    """Run the agent: `python -m replica --run DIR --replica N`."""
    parser = argparse.ArgumentParser(prog="python -m replica", description="The agent of one replica.")
    parser.add_argument("--run", type=Path, required=True, help="run directory on the shared file system")
    add_place(parser)
    parser.add_argument("--measure", action="store_true", help="measure this node before the run, if nobody did")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the primary, which stops its agents
    output = MessageOutput()
    try:
        with PATIENCE.set(StorageSection().patience):  # until it has read what the run's is
            return asyncio.run(_serve(arguments, open_run(arguments.run), output))
    except StorageError as error:
        output.send(messages.Unable(reason=str(error), storage=True))
        return error.exit_code
    except AiperfError as error:
        output.send(messages.Unable(reason=str(error)))
        return error.exit_code
    except OSError as error:
        output.send(messages.Unable(reason=f"{type(error).__name__}: {error}", storage=may_pass(error)))
        return EXIT_ENVIRONMENT
