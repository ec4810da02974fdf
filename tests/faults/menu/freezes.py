"""SIGSTOP of a rank, an agent or the primary, and SIGCONT."""

from __future__ import annotations

import random
import signal
import time
from typing import ClassVar

from testing.processes import ask, lives
from tests.faults.attacked import SILENCE_S, Attacked

OTHERS_EPOCHS = 2
"""Others complete this many meanwhile."""


class Freeze:
    """Ranks and agents: until others have worked on, or until they are given up and killed.

    The primary: for up to more than the silence that it takes for a loss.
    """

    variants: ClassVar[tuple[str, ...]] = ("rank", "rank for good", "agent", "agent for good", "primary")

    def missing(self) -> str:
        return ""

    def prepare(self, run: Attacked, draw: random.Random) -> None:
        pass

    def strike(self, run: Attacked, variant: str, draw: random.Random) -> bool:
        kind, _, for_good = variant.partition(" ")
        candidates = run.kinds()[kind]
        if not candidates:
            return False
        victim = draw.choice(candidates)
        before = run.epochs()
        ask(lambda: victim.send_signal(signal.SIGSTOP), None)
        try:
            if kind == "primary":
                time.sleep(draw.uniform(0.2, 1.5 * SILENCE_S))  # the fault itself: nothing else happens meanwhile
            elif for_good:
                run.wait(lambda: not lives(victim))
            else:
                run.wait(lambda: run.epochs() >= before + OTHERS_EPOCHS or not lives(victim))
        finally:
            ask(lambda: victim.send_signal(signal.SIGCONT), None)
        return True

    def clean(self) -> None:
        pass
