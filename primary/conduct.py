"""A primary from its first record to its last, natively or under NNI."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine

from aiperf.clock import Clock
from aiperf.config.settings import RunConfig
from aiperf.errors import EnvironmentNotReadyError, RunHeldError
from aiperf.history.files import HistoryWriter
from aiperf.run_directory.paths import RunPaths
from primary.allocations import allocation_of
from primary.context import RunContext
from primary.dispatcher import Dispatcher
from primary.display.state import FailSafeDisplay
from primary.display.terminal import open_display
from primary.launchers import make_launcher
from primary.managers.contract import EndReason, Manager
from primary.resumption import Start

Companion = Callable[[Dispatcher], Coroutine[None, None, None]]
"""A task that accompanies the dispatcher; it is cancelled when the run has ended."""


def conduct(
    config: RunConfig,
    paths: RunPaths,
    start: Start,
    manager: Manager,
    clock: Clock,
    companion: Companion | None = None,
) -> EndReason:
    """Conduct a run to its end.

    Raises EnvironmentNotReadyError if its directory can no longer be written, and RunHeldError,
    when its processes have ended, if another primary has taken the run over.
    """
    logging.basicConfig(
        filename=paths.primary_log,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        with HistoryWriter(paths, "primary", clock) as writer:
            if start.resumption is not None:
                writer.append(start.resumption)
            elif writer.name != "primary-1":
                raise RunHeldError(f"{paths.root}: another primary has begun this run at the same time")
            for closing in start.closings:
                writer.append(closing)
            display = FailSafeDisplay(open_display(clock))
            display.event(f"run directory: {paths.root}")
            if allocation := allocation_of(config, os.environ):
                display.event(str(allocation))
            context = RunContext(
                config, paths, make_launcher(config, clock), writer, display,
                start.work, start.claim, manager, start.released_ms,
            )  # fmt: skip
            return asyncio.run(_dispatch(context, companion))
    except OSError as error:
        raise EnvironmentNotReadyError([f"{paths.root} can no longer be written: {error}"]) from error


async def _dispatch(context: RunContext, companion: Companion | None) -> EndReason:
    dispatcher = Dispatcher(context)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, dispatcher.interrupt)
    accompanying = asyncio.create_task(companion(dispatcher)) if companion is not None else None
    try:
        reason = await dispatcher.run()
        if context.claim.lost is not None:
            raise context.claim.lost
        return reason
    finally:
        if accompanying is not None:
            accompanying.cancel()
