"""A run from the first record of its primary to the last, natively or under NNI."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from aiperf.clock import Clock
from aiperf.config.settings import RunConfig
from aiperf.errors import RunHeldError, StorageError
from aiperf.machine.description import folders_of
from aiperf.machine.node import describe_node
from aiperf.records.history_files import LAST_RECORDS_S, HistoryWriter
from aiperf.run_directory.claim import identity_of
from aiperf.run_directory.paths import RunPaths
from aiperf.run_directory.snapshot import FEWEST_REPLICAS
from aiperf.signals import heed
from aiperf.storage.logs import QuietHandler
from aiperf.storage.patience import PATIENCE, Patience, Waits
from aiperf.storage.reserve import Reserve
from primary.allocations import allocation_of
from primary.allocations.time_left import early_end
from primary.context import RunContext, storage_note
from primary.digest import open_digest
from primary.dispatcher import Dispatcher
from primary.display.snapshot import SnapshotDisplay
from primary.display.state import Display, FailSafeDisplay, PatientDisplay, SeveralDisplays
from primary.display.terminal import open_display
from primary.launchers import make_launcher
from primary.managers import EndReason, Manager
from primary.open_files import allow_files, files_needed
from primary.resumption import Start

log = logging.getLogger(__name__)

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

    Raises StorageError if its directory can no longer be written, and RunHeldError, when its
    processes have ended, if another primary has taken the run over.
    """
    allow_files(files_needed(config))
    handler = QuietHandler(paths.primary_log)
    handler.in_background()
    logging.basicConfig(handlers=[handler], level=logging.INFO, format=LOG_FORMAT)
    reserve, launcher = Reserve(paths.reserve), make_launcher(config, clock)
    display = _display(config, paths, start, clock)
    waits = Waits(lambda reason: display.event(f"the primary {storage_note(reason)}"))
    records = Patience(config.storage.patience, waits.of("records"))
    files = PATIENCE.set(config.storage.patience, waits.of("files"))
    try:
        with files, HistoryWriter(paths, "primary", clock, records) as writer:
            _record_start(start, writer, paths)
            display.event(f"run directory: {paths.root}")
            if allocation := allocation_of(config, os.environ):
                display.event(str(allocation))
            if start.resumption is not None and (early := early_end(config, rest_s=start.rest_s(config, clock))):
                display.event(f"WARNING: {early}")
            context = RunContext(
                config, paths, launcher, writer, display, start.work, start.claim, manager, start.released_ms, reserve,
                open_digest(paths, writer, start.digest, records), identity_of(paths.claims, start.claim.number),
                start.earlier,
            )  # fmt: skip
            return asyncio.run(_dispatch(context, records, companion))
    except StorageError as error:
        resume = f"resume the run when it can be written: aiperf resume {paths.root}"
        raise StorageError([f"{error}; {resume}"]) from error
    finally:
        display.close()
        reserve.release()


def _display(config: RunConfig, paths: RunPaths, start: Start, clock: Clock) -> Display:
    """The live view, and the snapshot of a large run, each in a thread of its own."""
    view = PatientDisplay(FailSafeDisplay(open_display(clock)))
    # A resumed view does not know earlier operations: its snapshot would belie the records.
    if config.run.suite != "automl" or config.run.replicas < FEWEST_REPLICAS or start.resumption is not None:
        return view
    return SeveralDisplays(view, PatientDisplay(FailSafeDisplay(SnapshotDisplay(paths, config, clock))))


def _record_start(start: Start, writer: HistoryWriter, paths: RunPaths) -> None:
    if start.resumption is not None:
        writer.append(start.resumption)
    elif writer.name != "primary-1":
        raise RunHeldError(f"{paths.root}: another primary has begun this run at the same time")
    for closing in start.closings:
        writer.append(closing)


async def _dispatch(context: RunContext, records: Patience, companion: Companion | None) -> EndReason:
    folders = folders_of(context.paths.root, context.config.run.data_dir)
    dispatcher = Dispatcher(context, await asyncio.to_thread(describe_node, folders))
    context.writer.in_background(lambda _: dispatcher.interrupt())
    context.digest.in_background()
    dispatcher.claim.in_background()
    heed(dispatcher.interrupt, signal.SIGINT, note=context.announce)
    asyncio.get_running_loop().set_exception_handler(partial(_report_unhandled, context))
    accompanying = asyncio.create_task(_accompany(companion, dispatcher)) if companion is not None else None
    try:
        reason = await dispatcher.run()
        if context.claim.lost is not None:
            raise context.claim.lost
        return reason
    finally:
        # Only the files: the records keep their patience until they are settled.
        PATIENCE.hurry()
        with contextlib.suppress(TimeoutError, StorageError):  # closing the writer reports it
            async with asyncio.timeout(context.config.run.stop_grace):
                await context.writer.settled()
                await context.digest.settled()
        records.hurry()
        context.digest.close(LAST_RECORDS_S)
        if accompanying is not None:
            accompanying.cancel()


async def _accompany(companion: Companion, dispatcher: Dispatcher) -> None:
    """Accompany the run, and end it if the companion fails: it would be without supervision."""
    try:
        await companion(dispatcher)
    except Exception:
        log.exception("the run is ended")
        dispatcher.interrupt()


def _report_unhandled(context: RunContext, loop: asyncio.AbstractEventLoop, facts: dict[str, Any]) -> None:
    """Say what nothing has caught.

    The replica that it belongs to falls silent, and is lost by that.
    """
    error, text = facts.get("exception"), facts.get("message")
    log.error("%s", text, exc_info=error)
    context.announce(f"WARNING: {text}: {error!r}; see {context.paths.primary_log}")
