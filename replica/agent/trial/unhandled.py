"""Errors that no code catches: they fail the trial, which would wait for its deadline otherwise."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiperf.errors import TrialFailedError

log = logging.getLogger(__name__)


@asynccontextmanager
async def unhandled_errors_fail_it() -> AsyncIterator[None]:
    """Run a block that an exception in a callback of the event loop ends.

    Raises TrialFailedError ("error") then. A task that was dropped and failed is only logged: the
    code that awaited it has continued without it.
    """
    loop, found = asyncio.get_running_loop(), list[str]()

    def note(_: asyncio.AbstractEventLoop, facts: dict[str, Any]) -> None:
        error, text = facts.get("exception"), str(facts.get("message"))
        log.error("%s", text, exc_info=error)
        if not found and ("handle" in facts or "protocol" in facts or "transport" in facts):
            found.append(f"{text}: {error!r}")
            # A callback cannot raise into the block. A timeout that is over at once can: it cancels
            # the task that runs the block, at its next await.
            limit.reschedule(loop.time())

    before = loop.get_exception_handler()
    loop.set_exception_handler(note)
    limit = asyncio.timeout(None)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not found:
            raise
        raise TrialFailedError("error", found[0]) from None
    finally:
        loop.set_exception_handler(before)
