"""The verbs of the primary: `aiperf run` and `aiperf resume`."""

from __future__ import annotations

import argparse
from pathlib import Path

from aiperf.cli.command import Command, add_format
from aiperf.cli.run_options import add_run_options, read_run_options
from aiperf.clock import Clock, SystemClock
from aiperf.config.settings import RunConfig
from aiperf.errors import EXIT_DONE, EXIT_FAILED, EnvironmentNotReadyError
from aiperf.files import write_atomically
from aiperf.run_directory.manifest import read_manifest, write_manifest
from aiperf.run_directory.paths import RunPaths, open_run
from aiperf.storage.patience import PATIENCE
from primary import preflight
from primary.doctor.cli import examine
from primary.managers import MANAGERS, EndReason, ManagedRun

START_PATIENCE_S = 10.0
"""Longest wait for the directory of a new run: a wrong one should not take long to say so."""


def _configure(parser: argparse.ArgumentParser) -> None:
    add_run_options(parser)
    parser.add_argument("--output", type=Path, metavar="DIR", help="run directory (default: runs/NAME-TIME)")
    parser.add_argument("--dry-run", action="store_true",
                        help="start no run: print what aiperf doctor finds without its probe")  # fmt: skip
    add_format(parser)


def _execute(arguments: argparse.Namespace) -> int:
    if arguments.dry_run:
        return examine(arguments, steps=0)
    config, clock = read_run_options(arguments), SystemClock()
    if arguments.output is None:
        arguments.output = preflight.default_output(config, clock)
    preflight.check(config, arguments.output)
    paths = RunPaths(arguments.output)
    try:
        with PATIENCE.set(min(START_PATIENCE_S, config.storage.patience)):
            paths.create()
            if config.search.space is not None:
                write_atomically(paths.space, Path(config.search.space).read_bytes())
            write_manifest(paths, config)
    except OSError as error:
        raise EnvironmentNotReadyError([f"--output {arguments.output} cannot be written: {error}"]) from error
    return _exit_code(_open(config, paths, clock).begin())


def _resume(arguments: argparse.Namespace) -> int:
    paths = open_run(arguments.directory)
    config = read_manifest(paths).config
    return _exit_code(_open(config, paths, SystemClock()).resume(arguments.new_clock))


def _open(config: RunConfig, paths: RunPaths, clock: Clock) -> ManagedRun:
    return MANAGERS.load(config.run.manager)(config, paths, clock)


def _exit_code(reason: EndReason) -> int:
    return EXIT_DONE if reason == "deadline" else EXIT_FAILED


def _report(arguments: argparse.Namespace) -> list[str]:
    return [] if arguments.dry_run else ["report", str(arguments.output), "--format", arguments.format]


RUN = Command(
    description="Start a timed run, with the primary here and replicas through the launcher; then print the report.",
    example="aiperf run --dataset digits --replicas 2 --duration 5m --output runs/first",
    configure=_configure,
    execute=_execute,
    follow_up=_report,
)


def _configure_resume(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="directory of the interrupted run")
    parser.add_argument("--new-clock", action="store_true",
                        help="restart the clock: earlier work does not count, the result is unofficial")  # fmt: skip
    add_format(parser)


RESUME = Command(
    description="Resume an interrupted run for the time that is left of it; then print the report.",
    example="aiperf resume runs/first",
    configure=_configure_resume,
    execute=_resume,
    follow_up=lambda arguments: ["report", str(arguments.directory), "--format", arguments.format],
)
