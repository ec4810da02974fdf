"""Signals by which schedulers warn, to the primary or to every process, at any point of a run."""

from __future__ import annotations

import random
import signal
from typing import ClassVar

from aiperf.errors import EXIT_DONE, EXIT_FAILED
from tests.faults.attacked import Attacked
from tests.support.processes import ask

EPOCHS = 1
"""Completed after a warning that ends nothing."""

KINDS = ("command", "manager", "primary", "agent", "rank")


class Warn:
    """SIGUSR1 ends nothing; the others end the run in order, and it can be resumed."""

    variants: ClassVar[tuple[str, ...]] = tuple(
        f"{name} to {whom}" for name in ("USR1", "USR2", "XCPU") for whom in ("the primary", "every process")
    )

    def missing(self) -> str:
        return ""

    def prepare(self, run: Attacked, draw: random.Random) -> None:
        pass

    def strike(self, run: Attacked, variant: str, draw: random.Random) -> bool:
        name, _, whom = variant.partition(" to ")
        number, kinds = signal.Signals[f"SIG{name}"], run.kinds()
        victims = kinds["primary"][:1] if whom == "the primary" else [each for kind in KINDS for each in kinds[kind]]
        if not run.alive or not kinds["primary"]:
            return False
        before = run.epochs()
        if number != signal.SIGUSR1:
            run.current.codes |= {EXIT_DONE, EXIT_FAILED}
        for victim in victims:
            ask(lambda victim=victim: victim.send_signal(number), None)  # type: ignore[misc]
        if number == signal.SIGUSR1:
            run.wait(lambda: run.epochs() >= before + EPOCHS or not run.alive)
            return True
        run.wait(lambda: not run.alive)
        run.flaws += unended(run)
        return True

    def clean(self) -> None:
        pass


def unended(run: Attacked) -> list[str]:
    """A flaw if the last primary has recorded no end."""
    files = (run.output / "history").glob("primary-*.jsonl")
    last = max(files, key=lambda file: int(file.stem.rpartition("-")[2]), default=None)
    if last is None:
        return []
    return [] if '"type":"run_ended"' in last.read_text() else [f"{last.name} has no end of the run"]
