"""The rank program: `python -m replica.trainer` joins the other ranks, prepares one training, and trains it.

Everything that TensorFlow prints goes to the log of the trial.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from pathlib import Path

from aiperf.clock import SystemClock
from aiperf.errors import AiperfError, TrialFailedError
from aiperf.messages import decode_begin, decode_train_request
from aiperf.run_directory.paths import RunPaths
from replica.machine.telemetry import start_telemetry
from replica.trainer.channel import AnyChannel, Channel, SilentChannel
from replica.trainer.settings import (
    RankSettings,
    TelemetrySettings,
    die_with_parent,
    rank_of_environment,
    read_settings,
    yield_to_preparations,
)
from replica.trainer.temporary import temporary_files_of_its_own

FAILED_EXIT = 1

KINDS = {
    "ResourceExhaustedError": "out_of_memory",
    "MemoryError": "out_of_memory",
    "DataLossError": "data",
    "HorovodInternalError": "rank_lost",
}
"""Kinds of failures by the name of TensorFlow's or Horovod's exception."""


def main() -> int:
    """Train one request; the agent is told how it ended."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = read_settings()
    die_with_parent()
    rank = rank_of_environment() if settings.ranks > 1 else 0
    channel: AnyChannel = Channel(settings.channel) if rank == 0 else SilentChannel(rank)
    with temporary_files_of_its_own(settings.channel):
        return _tell(settings, channel)


def _tell(settings: RankSettings, channel: AnyChannel) -> int:
    try:
        channel.done(_train(settings, channel))
    except TrialFailedError as error:
        channel.failed(error.kind, error.reason)
    except AiperfError as error:
        channel.failed("input", str(error))
    except Exception as error:  # the boundary of the process: anything else is told and logged, never lost
        traceback.print_exc()
        channel.failed(kind_of(error), f"{type(error).__name__}: {error}")
    else:
        return 0
    return FAILED_EXIT


def kind_of(error: Exception) -> str:
    """The kind of a failure that nobody expected. TensorFlow passes Horovod's errors on as UnknownError."""
    if type(error).__name__ == "UnknownError" and "horovod" in str(error).lower():
        return "rank_lost"
    return KINDS.get(type(error).__name__, "error")


def _train(settings: RankSettings, channel: AnyChannel) -> bool:
    channel.phase("start")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # TensorFlow takes seconds to import: only after the agent knows that something happens.
    from replica.trainer.collectives import open_collective  # noqa: PLC0415
    from replica.trainer.prepared import PreparedTrial  # noqa: PLC0415
    from replica.trainer.tensorflow import runtime  # noqa: PLC0415

    collective = open_collective(settings.ranks)
    runtime.configure(settings.cpu_threads, collective.local_rank)
    sample_further_node(settings.telemetry, collective.rank, collective.local_rank)

    def receive() -> bytes:
        """The next message to rank 0, on every rank."""
        return collective.broadcast(channel.receive_line() if isinstance(channel, Channel) else b"")

    request = decode_train_request(receive())
    channel.phase("build")
    prepared = PreparedTrial(request, collective)
    channel.ready()
    begin = decode_begin(receive())
    yield_to_preparations()
    early = prepared.run(begin, channel)
    collective.close()
    return early


def sample_further_node(settings: TelemetrySettings | None, rank: int, local_rank: int) -> None:
    """Sample this node for as long as this rank lives, if it is the first one of a node that has no agent."""
    if settings is None or rank == 0 or local_rank > 0:
        return
    paths = RunPaths(Path(settings.run))
    start_telemetry(paths, settings.writer, SystemClock(), settings.interval_s, settings.replica)


def end(code: int) -> None:
    """End at once: TensorFlow and Horovod take their time to be torn down, and nothing is left to be written."""
    logging.shutdown()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    end(main())
