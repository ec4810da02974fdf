"""Heartbeats: none while a replica reports, and never a silence that looks like a loss."""

import asyncio
from itertools import pairwise

from aiperf.wire.messages import Alive, Message, StorageWait
from rehearsal.virtual.clock import VirtualClock
from rehearsal.virtual.loop import VirtualLoop, run_virtually
from replica.agent.agent import Heartbeats

SILENCE_S = 60.0


def test_a_heartbeat_is_sent_only_if_nothing_else_was_for_a_quarter_of_the_silence() -> None:
    sent: list[tuple[float, Message]] = []
    quiet: list[float] = []

    async def main(loop: VirtualLoop) -> None:
        clock = VirtualClock(loop)
        beats = Heartbeats(lambda message: sent.append((loop.time(), message)), clock, SILENCE_S)
        beating = asyncio.create_task(beats.beat(lambda: quiet.append(loop.time())))
        await clock.sleep(35)
        for _ in range(4):
            beats.send(StorageWait(reason=""))
            await clock.sleep(9.5)
        await clock.sleep(28)
        beating.cancel()

    run_virtually(main)
    assert [at_s for at_s, message in sent if isinstance(message, Alive)] == quiet == [15, 30, 78.5, 93.5]
    assert max(after - before for (before, _), (after, _) in pairwise(sent)) == SILENCE_S / 4
