"""The rank program: `python -m replica.trainer` joins the other ranks and trains.

Everything that the framework prints goes to the log of the trial.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aiperf.clock import Clock, SystemClock
from aiperf.errors import AiperfError, TrialFailedError
from aiperf.files import keep_others_from_writing
from aiperf.frameworks import import_lean
from aiperf.host import ranges, this_host
from aiperf.machine.accelerators import invisible_reason, near_cpus, own_accelerator, unlisted_reason
from aiperf.machine.oom_order import prefer_oom_kill
from aiperf.machine.telemetry import start_telemetry
from aiperf.ranks import first_local_rank, rank_numbers
from aiperf.run_directory.paths import RunPaths
from aiperf.signals import die_with_parent, hold_warnings
from aiperf.storage.patience import PATIENCE
from aiperf.wire.lines import decode_begin, decode_train_request
from aiperf.wire.messages import UNFIT, TrainRequest, WorkloadRequest
from replica.trainer.channel import Channel, RankReporter, SilentChannel
from replica.trainer.collectives.contract import Collective
from replica.trainer.collectives.rank import local_rank_of
from replica.trainer.failures import is_out_of_memory
from replica.trainer.framework import Framework
from replica.trainer.frameworks import FRAMEWORKS
from replica.trainer.hybrid.group import open_ranks
from replica.trainer.settings import (
    RankSettings,
    TelemetrySettings,
    read_settings,
    yield_to_warm_up,
)
from replica.trainer.temporary import temporary_files_of_its_own

if TYPE_CHECKING:
    from replica.trainer.ready import ReadyTraining
    from replica.trainer.science import ReadyScience

FAILED_EXIT = 1

log = logging.getLogger(__name__)


def main() -> int:
    """Train one request, and report to the agent how it ended."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    keep_others_from_writing()
    hold_warnings()  # they are for the agent, which ends its ranks
    settings = read_settings()
    die_with_parent()
    prefer_oom_kill(os.getpid())  # on further nodes, too
    clock = SystemClock()
    rank = own_rank(settings)
    leads = rank == settings.number == 0
    number = settings.number * settings.ranks + rank  # of all groups' ranks, for the log
    channel: Channel | SilentChannel = (
        Channel(settings.channel, clock) if leads else SilentChannel(name_in(settings, number), settings.number, clock)
    )
    # Of other ranks, a wait is in the log alone: rank 0 writes the files.
    told = channel.waits if isinstance(channel, Channel) else None
    with temporary_files_of_its_own(), PATIENCE.set(settings.patience_s, told):
        return Rank(settings, number, channel, clock).run()


def name_in(settings: RankSettings, number: int) -> str:
    """The name of a process in the log, by its number among all groups' ranks."""
    if settings.places is not None and settings.is_server:
        return settings.places.name_of(settings.number)
    return f"rank {number}"


def own_rank(settings: RankSettings) -> int:
    """Find this process's rank. Raises SystemExit, for the log, if its starter gave none."""
    if settings.ranks == 1 or settings.is_server:
        return 0
    if (numbers := rank_numbers()) is None:
        raise SystemExit("the starter gave this process no rank")
    return numbers.rank


class Rank:
    """One rank, from its start to the report of its end."""

    def __init__(self, settings: RankSettings, rank: int, channel: Channel | SilentChannel, clock: Clock) -> None:
        self._settings = settings
        self._rank = rank
        self._channel = channel
        self._clock = clock
        self._framework: Framework | None = None

    def run(self) -> int:
        """Train; give the exit code.

        Failures of any kind are reported, and logged if they are unexpected.
        """
        report: RankReporter = self._channel
        try:
            report.done(self._train())
        except TrialFailedError as error:
            report.failed(error.kind, error.reason)
        except AiperfError as error:
            report.failed("input", str(error))
        except Exception as error:  # the boundary of the process: nothing may be lost
            traceback.print_exc()
            report.failed(kind_of(error, self._framework), f"{type(error).__name__}: {error}")
        else:
            return 0
        return FAILED_EXIT

    def _train(self) -> bool:
        settings = self._settings
        if settings.places is not None and settings.is_server:
            from replica.trainer.servers.server import serve  # noqa: PLC0415  (without a framework)

            gc.enable()  # off for the start of a rank; a server has none of that, and lives for long
            serve(settings.places, settings.number, self._clock)
            return False
        self._channel.phase("start")
        # Frameworks take seconds to import: the agent is to know before that the rank has started.
        local_rank = local_rank_of() if settings.ranks > 1 else first_local_rank()
        stay_near_accelerator(local_rank, settings.cpu_threads * settings.sharers)
        own = own_accelerator(local_rank)
        os.environ.update(own)  # frameworks read it as they are imported
        framework = self._framework = FRAMEWORKS.load(self._settings.framework)()
        collective = open_ranks(framework, settings, self._clock)
        # Before the first look at a device: that is when frameworks read their settings.
        framework.configure(settings.cpu_threads, 0 if own else local_rank, settings.accelerator_part)
        check_accelerators(framework, settings)
        check_rank_has_accelerator(0 if own else local_rank, framework.accelerators())
        sample_further_node(settings.telemetry, self._rank, collective.local_rank)

        def receive() -> bytes:
            """The next message to rank 0, on every rank."""
            return collective.broadcast(self._channel.receive_line() if isinstance(self._channel, Channel) else b"")

        request = decode_train_request(receive())
        # The other CPUs are those of other ranks.
        request = replace(request, parallel_decode=min(request.parallel_decode, settings.cpu_threads))
        self._channel.phase("build")
        training = _ready(framework, request, collective, self._clock)
        self._channel.ready(training.built)
        begin = decode_begin(receive())
        if framework.accelerators():
            gc.collect()  # what was left of warming up may hold memory of a device
        else:
            yield_to_warm_up()  # not next to accelerators, which wait for what this process starts
        gc.freeze()  # the objects of framework and model stay: the collector need not visit them again
        gc.enable()
        early = training.run(begin, self._channel)
        collective.close()
        return early


def _ready(
    framework: Framework, request: TrainRequest, collective: Collective, clock: Clock
) -> ReadyTraining | ReadyScience:
    """Build and warm up the training that a request asks for.

    Keras is imported here and not before: importing the framework's module has chosen its backend.
    """
    import_lean("keras")
    if isinstance(request, WorkloadRequest):
        from replica.trainer.science import ReadyScience  # noqa: PLC0415

        return ReadyScience(framework, request, collective, clock)
    from replica.trainer.ready import ReadyTraining  # noqa: PLC0415
    from workloads.classification import CLASSIFICATION  # noqa: PLC0415

    return ReadyTraining(framework, CLASSIFICATION, request, collective, clock)


def kind_of(error: Exception, framework: Framework | None) -> str:
    """Find the kind of an unexpected failure, by the framework if it knows it."""
    known = framework.kind_of(error) if framework is not None else None
    return known or ("out_of_memory" if is_out_of_memory(error) else "error")


def stay_near_accelerator(local_rank: int, threads: int) -> None:
    """Keep the threads that this process starts from now on to the CPUs at its own accelerator."""
    near = near_cpus(local_rank, threads)
    if near == this_host().affinity():
        return
    with contextlib.suppress(OSError):  # CPUs that were switched off meanwhile
        os.sched_setaffinity(0, near)
        log.info("on the CPUs at its accelerator: %s", ranges(near))


def check_accelerators(framework: Framework, settings: RankSettings) -> None:
    """Raise TrialFailedError ("unfit") if AIPerf or the framework alone sees accelerators."""
    name, seen = framework.name(), framework.accelerators()
    reason = invisible_reason(name, seen) or (None if settings.takes_unlisted else unlisted_reason(name, seen))
    if reason is not None:
        raise TrialFailedError(UNFIT, reason)


def check_rank_has_accelerator(local_rank: int, accelerators: int) -> None:
    """Raise TrialFailedError ("unfit") if a framework has fewer accelerators than there are ranks.

    `own_accelerator` says so first for those whose driver AIPerf can ask.
    """
    # 0 accelerators: all ranks compute on the CPU, and share it.
    if 0 < accelerators <= local_rank:
        raise TrialFailedError(
            UNFIT,
            f"rank {local_rank} of this node has no accelerator of its own, there are {accelerators}: "
            f"give each rank one (replica.ranks), or leave replica.ranks out",
        )


def sample_further_node(settings: TelemetrySettings | None, rank: int, local_rank: int) -> None:
    """Sample this node if this rank is the first one of a node without an agent.

    It ends with this rank.
    """
    if settings is None or rank == 0 or local_rank > 0:
        return
    paths = RunPaths(Path(settings.run))
    start_telemetry(paths, settings.writer, SystemClock(), settings.interval_s, settings.replica)


def end(code: int) -> None:
    """End at once: tearing down TensorFlow and Horovod takes long, and everything is written."""
    logging.shutdown()
    with contextlib.suppress(OSError):  # the log's file system is full: the code is to be heard
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    gc.disable()  # until the first step: what is made before stays
    end(main())
