"""The verbs of the primary: `aiperf run` and `aiperf resume`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from aiperf.cli.command import Command, add_format
from aiperf.config.options import add_run_options, read_run_options
from aiperf.config.settings import RunConfig
from aiperf.errors import EXIT_DONE, EXIT_FAILED, EnvironmentNotReadyError, UsageError
from aiperf.files import write_atomically
from aiperf.run_directory.claim import Claim
from aiperf.run_directory.manifest import read_manifest, write_manifest
from aiperf.run_directory.paths import RunPaths, open_run
from primary import preflight
from primary.driving import drive
from primary.managers import EndReason, NativeManager
from primary.resumption import Start, prepare_resumption
from primary.worklist import WorkList

if TYPE_CHECKING:
    from primary.nni.experiment import NniRun


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
    if config.run.manager == "nni":
        return _exit_code(_nni_run(config, paths).begin())
    with Claim(paths.claim, time.time_ns() // 1_000_000) as claim:
        return _exit_code(drive(config, paths, Start(claim, WorkList(config)), NativeManager()))


def _resume(arguments: argparse.Namespace) -> int:
    paths = open_run(arguments.directory)
    config = read_manifest(paths).config
    by_nni = config.run.manager == "nni"
    if by_nni and arguments.new_clock:
        raise UsageError("--new-clock: an experiment of NNI has one clock; start a new run")
    with Claim(paths.claim, time.time_ns() // 1_000_000) as claim:
        start = prepare_resumption(paths, config, claim, arguments.new_clock)
        if not by_nni:
            return _exit_code(drive(config, paths, start, NativeManager()))
    # The primary that NNI starts claims the run for itself.
    preflight.check_resumption(config)
    return _exit_code(_nni_run(config, paths).resume())


def _nni_run(config: RunConfig, paths: RunPaths) -> NniRun:
    """A run under NNI, which is imported only where it is asked for."""
    from primary.nni.experiment import NniRun  # noqa: PLC0415

    return NniRun(config, paths, lambda line: print(line, file=sys.stderr, flush=True))  # noqa: T201


def _exit_code(reason: EndReason) -> int:
    return EXIT_DONE if reason == "deadline" else EXIT_FAILED


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
