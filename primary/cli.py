"""The verbs of the primary: `aiperf run`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import time
from pathlib import Path
from typing import Any

from aiperf.cli import Command, add_format
from aiperf.clock import SystemClock
from aiperf.config import PRESETS, RunConfig, load_config, parse_override
from aiperf.errors import EXIT_DONE, EXIT_FAILED, ConfigError, EnvironmentNotReadyError
from aiperf.files import write_atomically
from aiperf.history import HistoryWriter
from aiperf.manifest import write_manifest
from aiperf.paths import RunPaths
from primary import preflight
from primary.dispatcher import Dispatcher, EndReason, RunContext
from primary.launchers import LAUNCHERS
from primary.progress import open_display

OPTIONS = {"replicas": "run.replicas", "duration": "run.duration", "dataset": "run.dataset", "seed": "run.seed",
           "name": "run.name"}  # fmt: skip
"""Options that are shorthands for keys of the configuration."""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", nargs="?", type=Path, metavar="CONFIG.toml", help="configuration file")
    parser.add_argument("--preset", metavar="|".join(PRESETS), help="start from a preset instead of the defaults")
    parser.add_argument("--replicas", type=_number, metavar="N", help="number of replicas")
    parser.add_argument("--duration", metavar="TIME", help="wall time of the run: 90s, 5m, 1h30m, 12h")
    parser.add_argument("--dataset", metavar="NAME", help="data set: imagenet or digits (embedded)")
    parser.add_argument("--seed", type=_number, metavar="N", help="everything random is folded from it")
    parser.add_argument("--name", help="name of the run, for reports")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
                        help="any key of the configuration, such as training.batch_size=64; repeatable")  # fmt: skip
    parser.add_argument("--output", type=Path, metavar="DIR", help="run directory (default: runs/NAME-TIME)")
    add_format(parser)


def _number(text: str) -> int | str:
    """A whole number, or the text itself, which the configuration then reports with everything else."""
    try:
        return int(text)
    except ValueError:
        return text


def _overrides(arguments: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {}
    problems: list[str] = []
    for text in arguments.overrides:
        try:
            key, value = parse_override(text)
            result[key] = value
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    for option, key in OPTIONS.items():
        if getattr(arguments, option) is not None:
            result[key] = getattr(arguments, option)
    return result


def _execute(arguments: argparse.Namespace) -> int:
    config = load_config(arguments.config, arguments.preset, _overrides(arguments))
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
    _log_to(paths)
    try:
        reason = asyncio.run(_run(config, paths))
    except OSError as error:
        raise EnvironmentNotReadyError([f"{arguments.output} can no longer be written: {error}"]) from error
    return EXIT_DONE if reason == "deadline" else EXIT_FAILED


def _log_to(paths: RunPaths) -> None:
    logging.basicConfig(
        filename=paths.primary_log,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


async def _run(config: RunConfig, paths: RunPaths) -> EndReason:
    clock = SystemClock()
    with HistoryWriter(paths, "primary", clock) as writer:
        launcher = LAUNCHERS[config.run.launcher]()
        display = open_display()
        display.event(f"run directory: {paths.root}")
        dispatcher = Dispatcher(RunContext(config, paths, launcher, writer, clock, display))
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
