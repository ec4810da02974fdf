"""`aiperf stop`: the orderly end of a run, from any shell of the node that its primary is on."""

import argparse
import contextlib
import json
import os
import shlex
import signal

from aiperf.cli.command import Command, add_format, add_run
from aiperf.cli.lines import say, say_json, warn
from aiperf.clock import SystemClock
from aiperf.errors import EXIT_DONE, UsageError
from aiperf.run_directory.claim import SeenHolder, find_holder
from aiperf.run_directory.paths import RunPaths, open_run

LOOK_INTERVAL_S = 0.1


def _stop(arguments: argparse.Namespace) -> int:
    paths, clock = open_run(arguments.run), SystemClock()
    holder = _living_holder(paths, clock)
    if holder is None:
        raise UsageError(f"{paths.root}: no primary has this run; there is nothing to stop")
    if not holder.here:
        command = f"aiperf stop {shlex.quote(str(paths.root.absolute()))}"
        raise UsageError(f"{paths.root}: its primary is {holder}: stop it there, with: {command}")
    with contextlib.suppress(ProcessLookupError):
        os.kill(holder.pid, signal.SIGTERM)
    warn(f"aiperf: {holder} is asked to end the run; repeat the command to end it without waiting")
    # Another primary may take the run over meanwhile: that one was not asked to end it.
    while (now := _living_holder(paths, clock)) is not None and now.pid == holder.pid:
        clock.pause(LOOK_INTERVAL_S)
    if arguments.format == "json":
        say_json(json.dumps({"run": str(paths.root), "stopped": True}))
    else:
        say(f"{paths.root}: stopped")
    return EXIT_DONE


def _living_holder(paths: RunPaths, clock: SystemClock) -> SeenHolder | None:
    holder = find_holder(paths.claims, clock.utc_ms())
    return holder if holder is not None and holder.alive else None


def _configure(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_format(parser)


STOP = Command(
    description="End a run in order, as Ctrl-C does in its terminal, and wait until it has ended.\n"
    "A run that was stopped can be reported and, in the time that is left of it, resumed.",
    example="aiperf stop runs/first",
    configure=_configure,
    execute=_stop,
)
