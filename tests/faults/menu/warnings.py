"""Signals by which schedulers warn, to the primary or to every process, at any point of a run."""

import contextlib
import random
import re
import signal
from pathlib import Path
from typing import Any, ClassVar

import psutil

from aiperf.errors import EXIT_DONE, EXIT_FAILED
from aiperf.signals import WARNINGS
from tests.faults.attacked import Attacked
from tests.support.processes import ask, lives

EPOCHS = 1
"""Completed after a warning that ends nothing."""

KINDS = ("command", "manager", "primary", "agent", "rank")


class Warn:
    """SIGUSR1 ends nothing; the others end the run in order, and it can be resumed.

    The command ignores warnings until it heeds them, as in a job script (`slurm/script.py`): it
    outlives those that come before, and is warned again.
    """

    variants: ClassVar[tuple[str, ...]] = tuple(
        f"{name} to {whom}" for name in ("USR1", "USR2", "XCPU") for whom in ("the primary", "every process")
    )

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}

    def missing(self) -> str:
        return ""

    def prepare(self, run: Attacked, draw: random.Random) -> None:
        # Programs inherit what their parent ignores.
        self._before = {number: signal.signal(number, signal.SIG_IGN) for number in WARNINGS}

    def strike(self, run: Attacked, variant: str, draw: random.Random) -> bool:
        name, _, whom = variant.partition(" to ")
        number, kinds = signal.Signals[f"SIG{name}"], run.kinds()
        victims = kinds["primary"][:1] if whom == "the primary" else [each for kind in KINDS for each in kinds[kind]]
        if not run.alive or not kinds["primary"]:
            return False
        before, early = run.epochs(), [victim for victim in kinds["primary"] if not holds_warnings(victim)]
        if number != signal.SIGUSR1:
            run.current.codes |= {EXIT_DONE, EXIT_FAILED}
        warn(victims, number)
        run.wait(lambda: all(map(holds_warnings, early)))
        warn(early, number)
        if number == signal.SIGUSR1:
            run.wait(lambda: run.epochs() >= before + EPOCHS or not run.alive)
            return True
        run.wait(lambda: not run.alive)
        run.flaws += unended(run)
        return True

    def clean(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def warn(victims: list[psutil.Process], number: int) -> None:
    """Send a signal to those that are still there."""
    for victim in victims:
        ask(lambda victim=victim: victim.send_signal(number), None)  # type: ignore[misc]


def holds_warnings(process: psutil.Process) -> bool:
    """True if its main thread leaves them to the thread that heeds, or if it is gone."""
    with contextlib.suppress(OSError):
        found = re.search(r"^SigBlk:\s*(\w+)$", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
        if found and lives(process):
            return all(int(found[1], 16) >> number - 1 & 1 for number in WARNINGS)
    return True


def unended(run: Attacked) -> list[str]:
    """A flaw if the last primary has recorded no end."""
    files = (run.output / "history").glob("primary-*.jsonl")
    last = max(files, key=lambda file: int(file.stem.rpartition("-")[2]), default=None)
    if last is None:
        return []
    return [] if '"type":"run_ended"' in last.read_text() else [f"{last.name} has no end of the run"]
