"""The primary of a run that NNI drives, started by NNI's tuner: `python -m primary.nni --run DIR`.

It begins the run, or goes on with it where it has begun. When the tuner is gone, the run is interrupted in order.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from functools import partial
from pathlib import Path

from aiperf.errors import EXIT_DONE, EXIT_FAILED, AiperfError, MessageError
from aiperf.processes import MessageOutput, open_input
from aiperf.run_directory.claim import Claim
from aiperf.run_directory.manifest import read_manifest
from aiperf.run_directory.paths import open_run
from primary.dispatcher import Dispatcher
from primary.driving import drive
from primary.nni.manager import NniManager
from primary.nni.messages import Wanted, decode_to_primary
from primary.resumption import begin_or_go_on

ENDED_IN_NNI = "ended in NNI"


async def _listen(manager: NniManager, dispatcher: Dispatcher) -> None:
    """Do as the tuner says until it is gone; then end the run."""
    reader = await open_input()
    with contextlib.suppress(MessageError, ValueError):
        while line := await reader.readline():
            message = decode_to_primary(line)
            if isinstance(message, Wanted):
                manager.want(message)
            else:
                await dispatcher.cancel(message.trial, ENDED_IN_NNI)
    dispatcher.interrupt()


def main(argv: list[str] | None = None) -> int:
    """Be the primary of a run."""
    parser = argparse.ArgumentParser(prog="python -m primary.nni", description="The primary under NNI.")
    parser.add_argument("--run", type=Path, required=True, help="run directory")
    arguments = parser.parse_args(argv)
    output = MessageOutput()
    try:
        paths = open_run(arguments.run)
        config = read_manifest(paths).config
        manager = NniManager(output.send)
        with Claim(paths.claim, time.time_ns() // 1_000_000) as claim:
            start = begin_or_go_on(paths, config, claim)
            reason = drive(config, paths, start, manager, partial(_listen, manager))
    except AiperfError as error:
        print(f"aiperf: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return EXIT_DONE if reason == "deadline" else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
