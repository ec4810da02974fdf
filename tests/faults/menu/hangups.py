"""Terminals that are closed, and SIGHUP to all that was started from one."""

import random
import signal
from typing import ClassVar

from tests.faults.attacked import Attacked
from tests.support.processes import ask

EPOCHS = 2
"""Completed afterwards."""


class HangUp:
    """The run continues."""

    variants: ClassVar[tuple[str, ...]] = ("terminal", "every process")

    def missing(self) -> str:
        return ""

    def prepare(self, run: Attacked, draw: random.Random) -> None:
        pass

    def strike(self, run: Attacked, variant: str, draw: random.Random) -> bool:
        if not run.alive or not run.epochs():
            return False
        before = run.epochs()
        if variant == "terminal" and not run.current.close_terminal():
            variant = "every process"
        if variant == "every process":
            kinds = run.kinds()
            for process in [
                process for kind in ("command", "manager", "primary", "agent", "rank") for process in kinds[kind]
            ]:
                ask(lambda process=process: process.send_signal(signal.SIGHUP), None)  # type: ignore[misc]
        run.wait(lambda: run.epochs() >= before + EPOCHS or not run.alive)
        return True

    def clean(self) -> None:
        pass
