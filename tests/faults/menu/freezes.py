"""SIGSTOP of a rank, an agent, the primary or NNI's manager, and SIGCONT."""

import random
import signal
import time
from typing import ClassVar

from tests.faults.attacked import SILENCE_S, Attacked
from tests.support.processes import ask, lives

OTHERS_EPOCHS = 2
"""Others complete this many meanwhile."""

CONDUCT = {"primary": 1.5 * SILENCE_S, "manager": 30.0}
"""Processes that conduct the run, and the longest time for which they are stopped."""


class Freeze:
    """Ranks and agents: until others have worked on, or until they are given up and killed.

    The primary: for up to more than the silence that it takes for a loss; NNI's manager: for up to
    more than NNI waits for an answer.
    """

    variants: ClassVar[tuple[str, ...]] = ("rank", "rank for good", "agent", "agent for good", "primary", "manager")

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
            if kind in CONDUCT:  # the fault itself: nothing else happens meanwhile
                time.sleep(draw.uniform(0.2, CONDUCT[kind]))
            elif for_good:
                run.wait(lambda: not lives(victim))
            else:
                run.wait(lambda: run.epochs() >= before + OTHERS_EPOCHS or not lives(victim))
        finally:
            ask(lambda: victim.send_signal(signal.SIGCONT), None)
        return True

    def clean(self) -> None:
        pass
