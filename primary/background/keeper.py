"""Keeping a claim while a run works: a file server that does not answer stops no event loop."""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from aiperf.errors import RunHeldError
from aiperf.run_directory.claim import Claim
from aiperf.storage.storage_thread import InOrder, MakeOrdered, Ordered

log = logging.getLogger(__name__)

CERTAIN_WITHIN_S = 10.0
"""Storage that takes longer to answer counts as storage that refuses: the claim may be held."""


class ClaimKeeper:
    """Touches a claim. `superseded` is called once, if another primary has the run."""

    def __init__(self, claim: Claim, superseded: Callable[[RunHeldError], object]) -> None:
        self._claim = claim
        self._superseded = superseded
        self._announced = False
        self._thread: Ordered | None = None

    def in_background(self, thread: MakeOrdered = InOrder) -> None:
        """Touch it in a thread from now on."""
        self._thread = thread(asyncio.get_running_loop(), lambda error: log.error("%s", error))

    def look(self, every_s: float = 0.0) -> bool:
        """Touch it, unless it was within `every_s` or a touch is in progress.

        False if another primary is known to have the run.
        """
        if self._claim.lost is None and (self._thread is None or self._thread.idle):
            self._touch(every_s)
        return self._holds()

    async def certain(self) -> bool:
        """Touch it now and wait for the answer; False if another primary has the run."""
        if self._claim.lost is None:
            self._touch(0.0)
            if self._thread is not None:
                touched = asyncio.Event()
                self._thread.after(touched.set)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CERTAIN_WITHIN_S):
                        await touched.wait()
        return self._holds()

    def _touch(self, every_s: float) -> None:
        if self._thread is None:
            self._claim.touch(every_s)
        else:
            self._thread.put(lambda: self._try(every_s))

    def _try(self, every_s: float) -> None:
        try:
            self._claim.touch(every_s)
        except Exception:  # the thread must continue: a claim that no thread touches is lost
            log.exception("the claim cannot be kept")

    def _holds(self) -> bool:
        lost = self._claim.lost
        if lost is not None and not self._announced:
            self._announced = True
            self._superseded(lost)
        return lost is None
