"""The verbs of the primary: `aiperf run` and `aiperf resume`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import time
from pathlib import Path

from aiperf.claim import Claim
from aiperf.cli import Command, add_format
from aiperf.clock import SystemClock
from aiperf.config import RunConfig
from aiperf.errors import EXIT_DONE, EXIT_FAILED, EnvironmentNotReadyError
from aiperf.files import write_atomically
from aiperf.history import HistoryWriter
from aiperf.manifest import read_manifest, write_manifest
from aiperf.paths import RunPaths, open_run
from aiperf.run_options import add_run_options, read_run_options
from primary import preflight
from primary.dispatcher import Dispatcher, EndReason, RunContext
from primary.launchers import make_launcher
from primary.progress import open_display
from primary.resumption import Start, prepare_resumption
from primary.view import Unbreakable
from primary.worklist import WorkList


def _configure(parser: argparse.ArgumentParser) -> None:
    add_run_options(parser)
    parser.add_argument("--output", type=Path, metavar="DIR", help="run directory (default: runs/NAME-TIME)")
    add_format(parser)


def _execute(arguments: argparse.Namespace) -> int:
    config = read_run_options(arguments)
    if arguments.output is None:
        arguments.output = Path("runs") / f"{config.run.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    preflight.check(config, arguments.output)
    paths = RunPaths(arguments.output)
    try:
        paths.create()
        if config.search.space is not None:
            write_atomically(paths.space, Path(config.search.space).read_bytes())
        write_manifest(paths, config)
    except OSError as error:
        raise EnvironmentNotReadyError([f"--output {arguments.output} cannot be written: {error}"]) from error
    with Claim(paths.claim, time.time_ns() // 1_000_000) as claim:
        return _drive(config, paths, Start(claim, WorkList(config)))


def _resume(arguments: argparse.Namespace) -> int:
    paths = open_run(arguments.directory)
    config = read_manifest(paths).config
    with Claim(paths.claim, time.time_ns() // 1_000_000) as claim:
        return _drive(config, paths, prepare_resumption(paths, config, claim, arguments.new_clock))


def _drive(config: RunConfig, paths: RunPaths, start: Start) -> int:
    _log_to(paths)
    try:
        reason = asyncio.run(_run(config, paths, start))
    except OSError as error:
        raise EnvironmentNotReadyError([f"{paths.root} can no longer be written: {error}"]) from error
    return EXIT_DONE if reason == "deadline" else EXIT_FAILED


def _log_to(paths: RunPaths) -> None:
    logging.basicConfig(
        filename=paths.primary_log,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


async def _run(config: RunConfig, paths: RunPaths, start: Start) -> EndReason:
    clock = SystemClock()
    with HistoryWriter(paths, "primary", clock) as writer:
        if start.resumption is not None:
            writer.append(start.resumption)
        display = Unbreakable(open_display())
        display.event(f"run directory: {paths.root}")
        context = RunContext(
            config, paths, make_launcher(config), writer, clock, display, start.work, start.claim, start.released_ms
        )
        dispatcher = Dispatcher(context)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, dispatcher.interrupt)
        return await dispatcher.run()


RUN = Command(
    description="Start a timed run: primary here, replicas through the launcher; then print the report.",
    example="aiperf run --dataset digits --replicas 2 --duration 5m --output runs/first",
    configure=_configure,
    execute=_execute,
    follow_up=lambda arguments: ["report", str(arguments.output), "--format", arguments.format],
)


def _configure_resume(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="directory of the run that was broken off")
    parser.add_argument("--new-clock", action="store_true",
                        help="start the clock anew: a part without the work before; never official")  # fmt: skip
    add_format(parser)


RESUME = Command(
    description="Go on with a run whose primary died or was interrupted, with the time that is left of it.",
    example="aiperf resume runs/first",
    configure=_configure_resume,
    execute=_resume,
    follow_up=lambda arguments: ["report", str(arguments.directory), "--format", arguments.format],
)
