"""`--detach`: a run in the background, observed until it has started or failed to."""

import json
import os
import shlex
import sys

from aiperf.cli.lines import say, say_json, warn
from aiperf.clock import Clock
from aiperf.errors import EXIT_ENVIRONMENT
from aiperf.files import why_unwritable
from aiperf.processes import describe_exit
from aiperf.run_directory.claim import find_holder
from aiperf.run_directory.paths import RunPaths
from primary.background.outputs import OUTPUTS, redirect

LOOK_INTERVAL_S = 0.05


def detach(paths: RunPaths, clock: Clock, format_: str) -> int | None:
    """Split this process: the child is to conduct the run, in a session of its own.

    In the child the result is None, standard input is empty, and all output goes to a file of the
    run directory. In the parent it is an exit code: 0 when the child has claimed the run and begun
    its records, otherwise the child's, after its output was shown.
    """
    log = paths.run_output
    shown_bytes = log.stat().st_size if log.exists() else 0
    begun = len(paths.history_files("primary"))
    # Before the fork: text in a buffer would be printed by both processes.
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        # Without a terminal of its own, which could hang up or send Ctrl-C.
        os.setsid()
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123
            os.dup2(nothing.fileno(), 0)
        for number in OUTPUTS:
            redirect(number, log)
        return None
    # A claim alone is no start: the first record comes after it.
    while (holder := find_holder(paths.claims, clock.utc_ms())) is None or len(paths.history_files("primary")) == begun:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return _show_failure(paths, shown_bytes, os.waitstatus_to_exitcode(status))
        clock.pause(LOOK_INTERVAL_S)
    _show_start(paths, holder.pid, format_)
    return 0


def _show_failure(paths: RunPaths, shown_bytes: int, code: int) -> int:
    """The child's exit code, at least 1: a run that is over at once has not started either."""
    data = paths.run_output.read_bytes()[shown_bytes:] if paths.run_output.exists() else b""
    sys.stderr.write(data.decode(errors="replace"))
    if not data and (why := why_unwritable(paths.root)) is not None:
        warn(f"aiperf: the run could not start: {why}; then start it: aiperf resume {shlex.quote(str(paths.root))}")
        return EXIT_ENVIRONMENT
    if code < 0:
        warn(f"aiperf: the run was {describe_exit(code)} at its start")
    return code if code > 0 else 1


def _show_start(paths: RunPaths, pid: int, format_: str) -> None:
    run = shlex.quote(str(paths.root))
    facts: dict[str, str | int] = {
        "run": str(paths.root),
        "pid": pid,
        "output": str(paths.run_output),
        "status": f"aiperf status {run}",
        "dashboard": f"aiperf dashboard {run}",
        "stop": f"aiperf stop {run}",
    }
    if format_ == "json":
        say_json(json.dumps(facts, indent=2))
        return
    say(
        f"run directory: {paths.root}, process {pid}",
        f"its output:    {paths.run_output}",
        f"watch it:      {facts['status']}, or: {facts['dashboard']}",
        f"stop it:       {facts['stop']}",
    )
