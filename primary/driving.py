"""A primary from its first record to its last: what `aiperf run`, `aiperf resume` and a run under NNI share."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine

from aiperf.clock import SystemClock
from aiperf.config.settings import RunConfig
from aiperf.errors import EnvironmentNotReadyError
from aiperf.history.files import HistoryWriter
from aiperf.run_directory.paths import RunPaths
from primary.dispatcher import Dispatcher, RunContext
from primary.display.progress import open_display
from primary.display.view import Unbreakable
from primary.launchers import make_launcher
from primary.managers import EndReason, Manager
from primary.resumption import Start

Beside = Callable[[Dispatcher], Coroutine[None, None, None]]
"""What goes on while the dispatcher works; it ends with it."""


def drive(
    config: RunConfig, paths: RunPaths, start: Start, manager: Manager, beside: Beside | None = None
) -> EndReason:
    """Drive a run to its end. Raises EnvironmentNotReadyError where its directory can no longer be written."""
    logging.basicConfig(
        filename=paths.primary_log,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        return asyncio.run(_dispatch(config, paths, start, manager, beside))
    except OSError as error:
        raise EnvironmentNotReadyError([f"{paths.root} can no longer be written: {error}"]) from error


async def _dispatch(
    config: RunConfig, paths: RunPaths, start: Start, manager: Manager, beside: Beside | None
) -> EndReason:
    with HistoryWriter(paths, "primary", SystemClock()) as writer:
        if start.resumption is not None:
            writer.append(start.resumption)
        display = Unbreakable(open_display())
        display.event(f"run directory: {paths.root}")
        context = RunContext(
            config, paths, make_launcher(config), writer, display,
            start.work, start.claim, manager, start.released_ms,
        )  # fmt: skip
        dispatcher = Dispatcher(context)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, dispatcher.interrupt)
        companion = asyncio.create_task(beside(dispatcher)) if beside is not None else None
        try:
            return await dispatcher.run()
        finally:
            if companion is not None:
                companion.cancel()
