"""The wait for a start to be known: what is proposed before that would not take it into account."""

from __future__ import annotations

import asyncio
import logging

from aiperf.clock import Clock
from replica.search.planner import Planner

log = logging.getLogger(__name__)

LOOK_INTERVAL_S = 0.2
"""Seconds between two looks for the start of the trial in the evidence for the next one."""

STALE_S = 60.0
"""A digest that does not show a start for this long is not used."""


async def until_known(trial: int, planner: Planner, clock: Clock) -> None:
    """Wait until a look shows the start of a trial; rely on raw records if none does."""
    planner.note_start(trial)
    began_s = clock.monotonic_s()
    while not await asyncio.to_thread(_is_known, planner):
        if clock.monotonic_s() - began_s > STALE_S:
            await asyncio.to_thread(planner.distrust_digest, f"it has no entry for trial {trial}")
            return
        await clock.sleep(LOOK_INTERVAL_S)


def _is_known(planner: Planner) -> bool:
    try:
        return planner.knows_last_start()
    except OSError as error:
        log.warning("the evidence for the next trial cannot be read: %s", error)
        return False
