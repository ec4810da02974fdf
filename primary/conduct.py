"""A primary from its first record to its last, natively or under NNI."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Coroutine

from aiperf.clock import Clock
from aiperf.config.settings import RunConfig
from aiperf.errors import EnvironmentNotReadyError, StorageError
from aiperf.history.files import HistoryWriter
from aiperf.run_directory.paths import RunPaths
from aiperf.storage.logs import QuietHandler
from aiperf.storage.patience import PATIENCE, Patience
from aiperf.storage.reserve import Reserve
from primary.allocations import allocation_of
from primary.context import RunContext
from primary.dispatcher import Dispatcher
from primary.display.state import FailSafeDisplay
from primary.display.terminal import open_display
from primary.launchers import make_launcher
from primary.managers.contract import EndReason, Manager
from primary.resumption import Start

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

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

    Raises EnvironmentNotReadyError if its directory can no longer be written.
    """
    logging.basicConfig(handlers=[QuietHandler(paths.primary_log)], level=logging.INFO, format=LOG_FORMAT)
    reserve, records = Reserve(paths.reserve), Patience(config.storage.patience)
    try:
        with PATIENCE.set(config.storage.patience), HistoryWriter(paths, "primary", clock, records) as writer:
            for body in (*((start.resumption,) if start.resumption is not None else ()), *start.closings):
                writer.append(body)
            display = FailSafeDisplay(open_display(clock))
            display.event(f"run directory: {paths.root}")
            if allocation := allocation_of(config, os.environ):
                display.event(str(allocation))
            context = RunContext(
                config, paths, make_launcher(config, clock), writer, display,
                start.work, start.claim, manager, start.released_ms, reserve,
            )  # fmt: skip
            return asyncio.run(_dispatch(context, records, companion))
    except StorageError as error:
        resume = f"resume the run when it can be written: aiperf resume {paths.root}"
        raise StorageError([f"{error}; {resume}"]) from error
    except OSError as error:
        raise EnvironmentNotReadyError([f"{paths.root} can no longer be written: {error}"]) from error
    finally:
        reserve.release()


async def _dispatch(context: RunContext, records: Patience, companion: Companion | None) -> EndReason:
    dispatcher = Dispatcher(context)
    loop = asyncio.get_running_loop()
    context.writer.in_background(lambda _: dispatcher.interrupt())
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, dispatcher.interrupt)
    accompanying = asyncio.create_task(companion(dispatcher)) if companion is not None else None
    try:
        return await dispatcher.run()
    finally:
        PATIENCE.hurry()
        with contextlib.suppress(TimeoutError, StorageError):  # closing the writer reports it
            async with asyncio.timeout(context.config.run.stop_grace):
                await context.writer.settled()
        records.hurry()
        if accompanying is not None:
            accompanying.cancel()
