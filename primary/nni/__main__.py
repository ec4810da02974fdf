"""The primary of a run under NNI, started by NNI's tuner: `python -m primary.nni --run DIR`.

It begins the run, or resumes it if it has records. When the tuner ends, the run is interrupted in
order.
"""

import argparse
import contextlib
import sys
from functools import partial
from pathlib import Path

from aiperf.clock import SystemClock
from aiperf.errors import EXIT_DONE, EXIT_FAILED, AiperfError, MessageError
from aiperf.files import keep_others_from_writing
from aiperf.processes import MessageOutput, open_input
from aiperf.run_directory.claim import identity_of
from aiperf.run_directory.manifest import read_manifest
from aiperf.run_directory.paths import open_run
from primary.background.outputs import ignore_hangups
from primary.dispatcher import Dispatcher
from primary.launchers import end_leftovers
from primary.nni.manager import NniManager
from primary.nni.messages import Wanted, decode_to_primary
from primary.resumption import begin_or_resume, take_claim
from primary.run import conduct

ENDED_IN_NNI = "ended in NNI"


async def _listen(manager: NniManager, dispatcher: Dispatcher) -> None:
    """Follow the tuner's messages until it ends; then end the run."""
    reader = await open_input()
    # `readline` raises ValueError for a line over its limit.
    with contextlib.suppress(MessageError, ValueError):
        while line := await reader.readline():
            message = decode_to_primary(line)
            if isinstance(message, Wanted):
                manager.want(message)
            else:
                await dispatcher.cancel(message.trial, ENDED_IN_NNI)
    dispatcher.interrupt()


def main(argv: list[str] | None = None) -> int:
    """Conduct a run as its primary."""
    parser = argparse.ArgumentParser(prog="python -m primary.nni", description="The primary under NNI.")
    parser.add_argument("--run", type=Path, required=True, help="run directory")
    arguments = parser.parse_args(argv)
    keep_others_from_writing()
    ignore_hangups()
    output, clock = MessageOutput(), SystemClock()
    try:
        paths = open_run(arguments.run)
        config = read_manifest(paths).config
        manager = NniManager(output.send)
        with take_claim(paths, config, clock) as claim:
            end_leftovers(config, clock, identity_of(paths.claims, claim.number))
            start = begin_or_resume(paths, config, claim, clock.utc_ms())
            reason = conduct(config, paths, start, manager, clock, partial(_listen, manager))
    except AiperfError as error:
        print(f"aiperf: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return EXIT_DONE if reason == "deadline" else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
