"""The agent of a replica: takes jobs from the primary over its standard input, one trial at a time.

It never imports TensorFlow: trainers are processes of their own, so that whatever happens to one costs a
trial and not the replica.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import logging
import os
import signal
import sys
from pathlib import Path

from aiperf import __version__
from aiperf.clock import Clock, SystemClock
from aiperf.config import RunConfig
from aiperf.errors import EXIT_DONE, EXIT_ENVIRONMENT, AiperfError, TrialFailedError
from aiperf.history import HistoryWriter
from aiperf.manifest import read_manifest
from aiperf.messages import (
    MAX_LINE_BYTES,
    ClockReply,
    ClockRequest,
    Finished,
    Job,
    Message,
    Ready,
    Unable,
    decode_to_agent,
    encode,
)
from aiperf.paths import RunPaths, open_run
from aiperf.records import TrialFailed
from replica.node import available_cpus, describe_node, node_memory
from replica.planner import Planner
from replica.trial import ReplicaContext, Trial

log = logging.getLogger(__name__)


class Agent:
    """Serves one replica until the primary says stop or is gone."""

    def __init__(self, context: ReplicaContext, clock: Clock) -> None:
        self._context = context
        self._clock = clock
        self._work: asyncio.Task[None] | None = None

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Answer messages until Stop or the end of the pipe; then end the trial in progress and return."""
        self._context.send(
            Ready(writer=self._context.writer.name, version=__version__, accelerators=1, node=describe_node())
        )
        try:
            await self._answer(reader)
        finally:
            if self._work is not None:
                self._work.cancel()
                await asyncio.gather(self._work, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            message = decode_to_agent(line)
            if isinstance(message, ClockRequest):
                self._context.send(ClockReply(utc_ms=self._clock.utc_ms()))
            elif isinstance(message, Job):
                self._work = asyncio.create_task(self._do(message))
            else:
                log.info("stop: %s", message.reason)
                return

    async def _do(self, job: Job) -> None:
        trial = Trial(self._context, job)
        try:
            await trial.run()
            self._finish(job, trial, True, "")
        except asyncio.CancelledError:
            trial.stopped()
            raise
        except TrialFailedError as error:
            self._fail(job, trial, error.kind, error.reason)
        except AiperfError as error:
            self._fail(job, trial, "input", str(error))
        except Exception as error:
            log.exception("trial %d", job.trial)
            self._fail(job, trial, "error", f"{type(error).__name__}: {error}")

    def _fail(self, job: Job, trial: Trial, kind: str, reason: str) -> None:
        log.error("trial %d failed: %s: %s", job.trial, kind, reason)
        body = TrialFailed(trial=job.trial, replica=self._context.replica, kind=kind, reason=reason[:2000])
        self._context.writer.append(body)
        self._finish(job, trial, False, f"{kind}: {reason}"[:2000])

    def _finish(self, job: Job, trial: Trial, completed: bool, reason: str) -> None:
        trial.idle()
        self._context.send(Finished(trial=job.trial, completed=completed, reason=reason))


class _Output:
    """Messages to the primary on the original standard output; whatever else prints goes to the log."""

    def __init__(self) -> None:
        self._descriptor = os.dup(sys.stdout.fileno())
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def send(self, message: Message) -> None:
        with contextlib.suppress(BrokenPipeError):  # the end of the input says the same, in order
            data = encode(message)
            while data:
                data = data[os.write(self._descriptor, data) :]


def why_unable(config: RunConfig, replica: int) -> str | None:
    """Why this replica cannot work, or None."""
    if replica in config.simulated.broken_replicas and config.training.trainer == "simulated":
        return "simulated.broken_replicas names this replica"
    if config.training.trainer == "keras" and importlib.util.find_spec("tensorflow") is None:
        return f"TensorFlow is not installed for {sys.executable}; install aiperf-hpc[tensorflow] or [gpu] there"
    return None


async def _serve(arguments: argparse.Namespace, paths: RunPaths, output: _Output) -> int:
    config = read_manifest(paths).config
    reason = why_unable(config, arguments.replica)
    if reason is not None:
        output.send(Unable(reason=reason))
        return EXIT_ENVIRONMENT
    clock = SystemClock()
    with HistoryWriter(paths, f"replica-{arguments.replica:04d}", clock) as writer:
        context = ReplicaContext(
            replica=arguments.replica,
            config=config,
            paths=paths,
            writer=writer,
            planner=Planner(arguments.replica, config, paths, node_memory() // arguments.share),
            cpu_threads=config.replica.cpu_threads or max(1, available_cpus() // arguments.share),
            send=output.send,
        )
        reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        serving = asyncio.ensure_future(Agent(context, clock).serve(reader))
        loop.add_signal_handler(signal.SIGTERM, serving.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await serving
    return EXIT_DONE


def main(argv: list[str] | None = None) -> int:
    """Run the agent: `python -m replica --run DIR --replica N`."""
    parser = argparse.ArgumentParser(prog="python -m replica", description="The agent of one replica.")
    parser.add_argument("--run", type=Path, required=True, help="run directory on the shared file system")
    parser.add_argument("--replica", type=int, required=True, help="number of this replica, from 0")
    parser.add_argument("--share", type=int, default=1, help="replicas that share this node's CPUs")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the primary's; it tells its agents
    output = _Output()
    try:
        return asyncio.run(_serve(arguments, open_run(arguments.run), output))
    except AiperfError as error:
        output.send(Unable(reason=str(error)))
        return error.exit_code
    except OSError as error:
        output.send(Unable(reason=f"{type(error).__name__}: {error}"))
        return EXIT_ENVIRONMENT
